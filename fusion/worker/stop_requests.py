"""Requests to stop jobs of this worker."""

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
from fusion.store.write.broker import Broker
from fusion.worker.batched_calls import BatchedCalls

#: Most stops kept for executions that this worker has not received yet, and most requests that wait for Redis.
_MOST = 1000


class StopRequests:
    """Stops the runs that Redis says are to stop.

    - a client that stops a job writes that to Redis first, then sends the worker the execution id. So this class decides nothing;
    - a command without an execution id, as RQ sends, is a request that this worker writes to Redis.
    """

    def __init__(self, batched_calls: BatchedCalls, broker: Broker, link: RedisLink, log: logging.Logger) -> None:
        self._batched_calls, self._broker, self._link, self._log = batched_calls, broker, link, log
        #: Executions to stop that this worker has not received yet.
        self.early: deque[str] = deque(maxlen=_MOST)
        self._asked: deque[str] = deque(maxlen=_MOST)
        #: 0 while a request is not written to Redis, else inf.
        self.next_at = inf

    def obey(self, command: Command) -> None:
        """Stop the run that a command names. Without an execution id, keep the request for Redis."""
        if not command.execution_id:
            self._asked.append(command.job_id)
            self.next_at = 0.0
            return
        for run in self._batched_calls.runs():
            if run.claimed.execution_id == command.execution_id:
                self._batched_calls.stop(run)
                return
        self.early.append(command.execution_id)

    def tick(self, now: float) -> None:
        """Write the requests of RQ clients to Redis. RedisAway if it does not answer: the rest is kept."""
        while self._asked:
            try:
                answer = self._link.attempt(partial(self._broker.stop, check_job_id(self._asked[0])))
                self._log.info("stop of job %s: %s", self._asked[0], answer)
            except InvalidName as error:
                self._log.warning("stop: %s", one_line(str(error)))
            self._asked.popleft()
        self.next_at = inf
