"""Decides when a burst is over: when the worker has done all it can."""

from __future__ import annotations

import logging

from fusion.executors.base import Executor
from fusion.runtime.redis_link import RedisLink
from fusion.runtime.served_queues import ServedQueues
from fusion.store.layout.records import Turn
from fusion.store.read.blocked import blocked_jobs, in_words
from fusion.store.write.broker import Broker
from fusion.worker.blocked import HELD
from fusion.worker.probation import Probation

#: Exit code of a burst that ended with jobs in its queues that it could not run, as it lacks their tasks.
LEFT = 3


class Burst:
    """Decides when a worker with `--burst` ends. `code`: its exit code, unless it ends for another reason."""

    def __init__(
        self,
        on: bool,
        broker: Broker,
        link: RedisLink,
        served_queues: ServedQueues,
        executor: Executor,
        log: logging.Logger,
    ) -> None:
        self.on = on
        self.code = 0
        self._broker, self._link, self._served_queues, self._executor, self._log = broker, link, served_queues, executor, log

    def is_over(self, turn: Turn, probation: Probation) -> bool:
        """Return True if no work is left. Call it while nothing runs, after a turn without jobs. Jobs that are due now count as work."""
        if probation.pending or turn.waits is not None or turn.opens_in is not None:
            return False
        if turn.status == "ok" and turn.next_in is not None and turn.next_in <= 0:
            self._link.attempt(self._broker.promote)
            return False
        released, release_in = self._link.attempt(self._broker.release)
        if released or release_in == 0:  # other jobs waited for the last one that ended
            return False
        blocked = self._link.attempt(lambda: blocked_jobs(self._broker.connection, self._broker.keys))
        held = [one for one in blocked if one.kind == HELD and self._served_queues.serves(one.queue)]
        for one in held:
            self._log.warning("%s", in_words(one))
        if held:
            self.code = LEFT
            self._log.warning("nothing left to do but %d held job(s): the burst ends", sum(one.count for one in held))
        else:
            self._log.info("nothing left to do: the burst ends")
        return True

    def is_hopeless(self) -> bool:
        """Return True if no job can ever run here. A burst does not wait for somebody to repair the cause."""
        if not (self.on and self._executor.hopeless):
            return False
        self.code = 1
        self._log.error("%s: the burst ends; see --tasks", self._executor.hopeless)
        return True
