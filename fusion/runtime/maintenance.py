"""What any worker or scheduler does for the whole fleet: bury the dead, move what is due, sweep. No leader is needed for any of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from redis.exceptions import ResponseError

from fusion.settings import Settings
from fusion.store.client.connections import classify, one_line
from fusion.store.write.broker import Broker

#: Seconds between two looks for what is due or has expired: what comes meanwhile and is over sooner is noticed that late.
_PROMOTE_INTERVAL = 1.0
#: Seconds until a pass over all queues' names goes on.
_BREATH = 0.05
#: Calls of one bounded script in a row, so that a backlog never keeps the loop from its jobs.
_ROUNDS = 5


class Maintenance:
    """Timers and the scripts behind them. Each `run` makes at most a handful of bounded calls."""

    def __init__(
        self,
        settings: Settings,
        queues: Callable[[], Sequence[str]],
        log: logging.Logger,
        *,
        promote_batch: int = 100,
    ) -> None:
        self._lease = settings.lease
        # a lease a test or a user made short must still be looked at several times in its length
        self._reap_every = min(settings.reap_interval, settings.lease / 4)
        self._clean_every = settings.maintenance_interval
        self._promote_batch = promote_batch
        self._queues, self._log = queues, log
        self._failing: dict[str, str] = {}
        self._reap_at = self._clean_at = self._promote_at = 0.0
        self._expire_at = float("inf")

    @property
    def next_at(self) -> float:
        return min(self._reap_at, self._clean_at, self._promote_at, self._expire_at)

    def due(self, at: float) -> None:
        """Look for due jobs at this monotonic time at the latest."""
        self._promote_at = min(self._promote_at, at)

    def run(self, broker: Broker, now: float) -> None:
        """Do what is due. What fails for a key that is not what it should be is said once and tried again when it is due next."""
        if now >= self._reap_at:
            self._reap_at = now + self._reap_every
            self._do("recovering what the dead held", lambda: self._bury(broker))
        if now >= self._promote_at:
            self._promote_at = now + _PROMOTE_INTERVAL
            self._do("moving due jobs to their queues", lambda: self._promote(broker, now))
        if now >= self._expire_at:
            self._expire_at = float("inf")  # the next look for due jobs tells
            self._do("ending what has expired", lambda: self._expire(broker, now))
        if now >= self._clean_at:
            self._clean_at = now + self._clean_every
            self._do("cleaning", lambda: self._clean(broker, now))

    def _do(self, what: str, duty: Callable[[], None]) -> None:
        try:
            duty()
        except ResponseError as error:
            if classify(error) != "bug":
                raise
            if self._failing.get(what) != str(error):
                self._failing[what] = str(error)
                self._log.error("%s failed, and is tried again: %s", what, one_line(error))
        else:
            if self._failing.pop(what, None):
                self._log.warning("%s works again", what)

    def _promote(self, broker: Broker, now: float) -> None:
        for _ in range(_ROUNDS):
            _, next_in, over_in = broker.promote_and_look(self._promote_batch)
            self._expire_at = float("inf") if over_in is None else now + over_in
            if next_in is None or next_in > 0:
                break
        else:
            self._promote_at = now
        if next_in is not None:
            self.due(now + next_in)

    def _expire(self, broker: Broker, now: float) -> None:
        for _ in range(_ROUNDS):
            _, next_in = broker.expire(self._promote_batch)
            if next_in is None or next_in > 0:
                break
        if next_in is not None:
            self._expire_at = now + next_in

    def _clean(self, broker: Broker, now: float) -> None:
        if all(broker.clean(interval=self._clean_every / 2) for _ in range(_ROUNDS)):
            self._clean_at = now + _BREATH

    def _bury(self, broker: Broker) -> None:
        for _ in range(_ROUNDS):
            recovered, again = broker.reap(self._lease, self._reap_every, self._queues())
            if recovered:
                self._log.warning("recovered %d job(s) whose lease had run out", recovered)
            if not again:
                break
        for name, jobs in broker.prune(self._lease):
            self._log.warning("worker %s is gone; its registration was removed and %d job(s) recovered", name, jobs)
