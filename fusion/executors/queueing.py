"""The part that generations of horses share: runs that have not begun."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from fusion.executors.base import Run
from fusion.executors.prefetch import Prefetch

Key = TypeVar("Key", int, str)
AnyRun = TypeVar("AnyRun", bound=Run)


class Queueing(Generic[Key, AnyRun]):
    """As it is where each process runs one job at a time: none waits, or those that were prefetched."""

    prefetching: Prefetch | None = None
    runs: dict[Key, AnyRun]

    @property
    def taken(self) -> int:
        """Slots that runs have."""
        return len(self.runs)

    @property
    def only_high(self) -> bool:
        """True while lower jobs must not come."""
        return False

    @property
    def queued(self) -> Sequence[Run]:
        """Runs that have not begun."""
        return self.prefetching.queued if self.prefetching else ()

    def exchanged(self, seconds: float, jobs: int) -> None:
        """Record one exchange with Redis, see `PrefetchEstimator.exchanged`."""
        if self.prefetching:
            self.prefetching.estimator.exchanged(seconds, jobs)

    def return_queued(self, why: str) -> None:
        """Return them."""
        if self.prefetching:
            self.prefetching.recall(why)

    def send_queued(self) -> None:
        """Send what was given since."""
        if self.prefetching:
            self.prefetching.send()
