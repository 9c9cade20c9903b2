"""The end of a burst: the worker has done what it can do."""

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
    """Finds out when a worker in a burst is to end. `code`: its exit code, unless it ends for another reason."""

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
        """True if nothing is left to do, after a turn that brought nothing, while nothing runs. What is due now is still work."""
        if probation.pending or turn.waits is not None or turn.opens_in is not None:
            return False
        if turn.status == "ok" and turn.next_in is not None and turn.next_in <= 0:
            self._link.attempt(self._broker.promote)
            return False
        released, release_in = self._link.attempt(self._broker.release)
        if released or release_in == 0:  # what its last job ended, others waited for
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
        """True if no job will ever run here: nobody mends the cause while a burst waits."""
        if not (self.on and self._executor.hopeless):
            return False
        self.code = 1
        self._log.error("%s: the burst ends; see --tasks", self._executor.hopeless)
        return True
