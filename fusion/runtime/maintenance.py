"""Work that any process does for the whole fleet.

Recover jobs of dead workers, move due jobs, release jobs that waited for others, end expired jobs, clean, record how much waits, and resume
bulk operations.

No leader is needed for any of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from os import getpid
from socket import gethostname
from typing import TYPE_CHECKING

from redis.exceptions import ResponseError

from fusion.runtime.redis_link import RedisLink
from fusion.runtime.served_queues import ServedQueues
from fusion.settings import Settings
from fusion.store.client.connections import classify, one_line
from fusion.store.write.broker import Broker

if TYPE_CHECKING:
    from fusion.operations.carrier import Carrier

#: Seconds between two searches for due and expired jobs, and so the longest delay until one is noticed.
_PROMOTE_INTERVAL = 1.0
#: Seconds between two records of how much waits in each queue.
_SAMPLE_INTERVAL = 10.0
#: Seconds between two searches for operations to resume; that one part may take; and that the loop then has for its jobs.
_LOOK_INTERVAL, _PART, _BETWEEN_PARTS = 5.0, 0.01, 0.02
#: Most jobs that such a part reads.
_PAGE = 200
#: Seconds until a pass over all queues' names goes on.
_BREATH = 0.05
#: Calls of one bounded script in a row, so that a backlog never keeps the loop from its jobs.
_ROUNDS = 5


class Maintenance:
    """Pieces of work and their times. Each `tick` makes at most a handful of bounded calls.

    Jobs of `served_queues` are recovered first.
    """

    def __init__(
        self,
        settings: Settings,
        broker: Broker,
        link: RedisLink,
        served_queues: ServedQueues,
        log: logging.Logger,
    ) -> None:
        self._lease = settings.lease
        # check several times within one lease, even if a test or a user made it short
        self._reap_every = min(settings.reap_interval, settings.lease / 4)
        self._clean_every = settings.maintenance_interval
        self._broker, self._link, self._served_queues, self._log = broker, link, served_queues, log
        self._failing: dict[str, str] = {}
        self._settings = settings
        self._carrier: Carrier | None = None
        self._parts = 0
        self._reap_at = self._clean_at = self._promote_at = self._sample_at = self._carry_at = 0.0
        self._expire_at = self._release_at = self._tend_at = float("inf")
        #: When the first of them is due.
        self.next_at = 0.0

    def due(self, at: float) -> None:
        """Have due jobs moved at this monotonic time at the latest."""
        self._promote_at = min(self._promote_at, at)
        self.next_at = min(self.next_at, at)

    def releases(self) -> None:
        """Have jobs released soon: some no longer wait for others."""
        if self._release_at == float("inf"):  # else the last search set the time
            self._release_at = self.next_at = 0.0

    def tick(self, now: float) -> None:
        """Do what is due. RedisAway if Redis does not answer.

        A step that fails for a key of the wrong type is logged once and tried again when it is due next.
        """
        try:
            self._link.attempt(partial(self._run, now), look=True)
        finally:
            self.next_at = min(
                *(self._reap_at, self._clean_at, self._promote_at, self._expire_at),
                *(self._release_at, self._tend_at, self._sample_at, self._carry_at),
            )

    def _run(self, now: float) -> None:
        if now >= self._reap_at:
            self._reap_at = now + self._reap_every
            self._do("recovering what the dead held", self._recover)
        if now >= self._promote_at:
            self._promote_at = now + _PROMOTE_INTERVAL
            self._do("moving due jobs to their queues", partial(self._promote, now))
        if now >= self._release_at:
            self._release_at = float("inf")
            self._do("releasing jobs that waited for others", partial(self._release, now))
        if now >= self._expire_at:
            self._expire_at = float("inf")  # the next search for due jobs tells
            self._do("ending what has expired", partial(self._expire, now))
        if now >= self._tend_at:
            self._tend_at = float("inf")  # as above
            self._do("seeing to batches", partial(self._tend, now))
        if now >= self._clean_at:
            self._clean_at = now + self._clean_every
            self._do("cleaning", partial(self._clean, now))
        if now >= self._sample_at:
            self._sample_at = now + _SAMPLE_INTERVAL
            self._do("noting how much waits", partial(self._sample, now))
        if now >= self._carry_at:
            self._carry_at = now + _LOOK_INTERVAL
            self._do("carrying on an operation", partial(self._carry, now))

    def _do(self, what: str, step: Callable[[], None]) -> None:
        try:
            step()
        except ResponseError as error:
            if classify(error) != "bug":
                raise
            if self._failing.get(what) != str(error):
                self._failing[what] = str(error)
                self._log.error("%s failed, and is tried again: %s", what, one_line(error))
        else:
            if self._failing.pop(what, None):
                self._log.warning("%s works again", what)

    def _promote(self, now: float) -> None:
        for _ in range(_ROUNDS):
            _, next_in, over_in, batch_in = self._broker.promote()
            self._expire_at, self._tend_at = (float("inf") if wait is None else now + wait for wait in (over_in, batch_in))
            if next_in is None or next_in > 0:
                break
        else:
            self._promote_at = now
        if next_in is not None:
            self.due(now + next_in)

    def _release(self, now: float) -> None:
        for _ in range(_ROUNDS):
            _, next_in = self._broker.release()
            if next_in is None or next_in > 0:
                break
        if next_in is not None:
            self._release_at = now + next_in

    def _expire(self, now: float) -> None:
        for _ in range(_ROUNDS):
            _, next_in = self._broker.expire()
            if next_in is None or next_in > 0:
                break
        if next_in is not None:
            self._expire_at = now + next_in

    def _tend(self, now: float) -> None:
        for _ in range(_ROUNDS):
            _, next_in = self._broker.tend_batches()
            if next_in is None or next_in > 0:
                break
        if next_in is not None:
            self._tend_at = now + next_in

    def _clean(self, now: float) -> None:
        if all(self._broker.clean(interval=self._clean_every / 2) for _ in range(_ROUNDS)):
            self._clean_at = now + _BREATH

    def _sample(self, now: float) -> None:
        if all(self._broker.sample(_SAMPLE_INTERVAL * 0.9) for _ in range(_ROUNDS)):
            self._sample_at = now + _BREATH

    def _carry(self, now: float) -> None:
        running = self._broker.running_operations()
        if not running:
            self._carrier = None
            return
        if self._carrier is None:
            from fusion.operations.carrier import Carrier  # loaded here, as there is seldom an operation to resume

            self._carrier = Carrier(
                self._broker.connection, self._settings, f"{gethostname()}.{getpid()}", page=_PAGE, part=_PART
            )
        self._parts += 1
        first = self._parts % len(running)
        for operation in (running[first:] + running[:first])[:_ROUNDS]:
            if self._carrier.carry(operation, _PART / 2)[0] in ("running", "done"):  # one part in a row
                self._carry_at = now + _BETWEEN_PARTS
                return

    def _recover(self) -> None:
        for _ in range(_ROUNDS):
            recovered, again = self._broker.reap(self._lease, self._reap_every, self._served_queues.queues)
            if recovered:
                self._log.warning("recovered %d job(s) whose lease had run out", recovered)
            if not again:
                break
        for name, jobs in self._broker.prune(self._lease):
            self._log.warning("worker %s is gone; its registration was removed and %d job(s) recovered", name, jobs)
