"""What any worker does for the whole fleet beside its jobs: bury the dead, move what is due, sweep. No leader is needed for any of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from fusion.settings import Settings
from fusion.store.broker import Broker

#: Seconds between two looks for due jobs while the worker is busy; idle, `turn` tells it when the next one is due.
_PROMOTE_INTERVAL = 1.0
#: Calls of one bounded script in a row, so that a backlog never keeps the loop from its jobs.
_ROUNDS = 5


class Duties:
    """Timers and the scripts behind them. Each `run` makes at most a handful of bounded calls."""

    def __init__(self, settings: Settings, queues: Callable[[], Sequence[str]], log: logging.Logger) -> None:
        self._lease = settings.lease
        # a lease a test or a user made short must still be looked at several times in its length
        self._reap_every = min(settings.reap_interval, settings.lease / 4)
        self._clean_every = settings.maintenance_interval
        self._queues, self._log = queues, log
        self._reap_at = self._clean_at = self._promote_at = 0.0

    @property
    def next_at(self) -> float:
        return min(self._reap_at, self._clean_at, self._promote_at)

    def due(self, at: float) -> None:
        """Look for due jobs at this monotonic time at the latest."""
        self._promote_at = min(self._promote_at, at)

    def run(self, broker: Broker, now: float) -> None:
        if now >= self._reap_at:
            self._reap_at = now + self._reap_every
            self._bury(broker)
        if now >= self._promote_at:
            self._promote_at = now + _PROMOTE_INTERVAL
            for _ in range(_ROUNDS):
                _, next_in = broker.promote()
                if next_in is None or next_in > 0:
                    break
            else:
                self._promote_at = now
            if next_in is not None:
                self.due(now + next_in)
        if now >= self._clean_at:
            self._clean_at = now + self._clean_every
            if any(not broker.clean() for _ in range(_ROUNDS)):
                return
            self._clean_at = now

    def _bury(self, broker: Broker) -> None:
        for _ in range(_ROUNDS):
            recovered, again = broker.reap(self._lease, self._reap_every, self._queues())
            if recovered:
                self._log.warning("recovered %d job(s) whose lease had run out", recovered)
            if not again:
                break
        for name, jobs in broker.prune(self._lease):
            self._log.warning("worker %s is gone; its registration was removed and %d job(s) recovered", name, jobs)
