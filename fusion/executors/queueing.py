"""The part that generations of horses share: runs that have not begun."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from fusion.executors.base import Run
from fusion.store.layout.records import Claimed

Key = TypeVar("Key", int, str)
AnyRun = TypeVar("AnyRun", bound=Run)


class Queueing(Generic[Key, AnyRun]):
    """As it is where each process runs one job at a time and has no other at hand: no run waits."""

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
        return ()

    def prefetch_room(self, lanes: int, free: int) -> int:
        """Return how many jobs may be prefetched."""
        return 0

    def prefetch(self, claimed: Claimed, limit: float, lanes: int) -> Run | None:
        """Let a job wait behind another; None if it can't."""
        return None

    def exchanged(self, seconds: float, jobs: int) -> None:
        """Record one exchange with Redis: how long it took, and how many jobs it moved."""

    def return_queued(self, why: str) -> None:
        """Return the runs that have not begun."""

    def send_queued(self) -> None:
        """Send what was given since the last call."""
