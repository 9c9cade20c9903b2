"""Jobs of this worker that are to stop."""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from math import inf

from fusion.exceptions import InvalidName
from fusion.runtime.commands import Command
from fusion.runtime.job_log import one_line
from fusion.runtime.redis_link import RedisLink
from fusion.store.layout.names import check_job_id
from fusion.store.layout.records import Claimed
from fusion.store.write.broker import Broker
from fusion.worker.gathered import Gathered

#: Executions that may be told of before the turn that brings them is heard; and jobs that Redis may be asked for.
_MOST = 1000


class Stops:
    """Ends the runs that Redis says are to stop.

    - who wants a job stopped writes that down in Redis first, and then tells the worker which execution is meant: nothing is decided here;
    - a command that names no execution, as RQ's, is such a wish, not yet written down.
    """

    def __init__(self, gathered: Gathered, broker: Broker, link: RedisLink, log: logging.Logger) -> None:
        self._gathered, self._broker, self._link, self._log = gathered, broker, link, log
        self._early: deque[str] = deque(maxlen=_MOST)
        self._asked: deque[str] = deque(maxlen=_MOST)

    @property
    def next_at(self) -> float:
        """At once while a wish is not written down."""
        return 0.0 if self._asked else inf

    def told(self, command: Command) -> None:
        """Obey a command."""
        if not command.execution_id:
            self._asked.append(command.job_id)
            return
        for run in self._gathered.runs():
            if run.claimed.execution_id == command.execution_id:
                self._gathered.stop(run)
                return
        self._early.append(command.execution_id)

    def is_told(self, claimed: Claimed) -> bool:
        """True if it was to stop before this worker knew that it has it."""
        return claimed.execution_id in self._early

    def tick(self, now: float) -> None:
        """Write down the wishes of others. RedisAway, with what is left kept."""
        while self._asked:
            try:
                answer = self._link.attempt(partial(self._broker.stop, check_job_id(self._asked[0])))
                self._log.info("stop of job %s: %s", self._asked[0], answer)
            except InvalidName as error:
                self._log.warning("stop: %s", one_line(str(error)))
            self._asked.popleft()
