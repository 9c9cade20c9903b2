"""The part that generations of horses share: runs that have not begun."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from fusion.executors.base import Run
from fusion.store.layout.records import Claimed

Key = TypeVar("Key", int, str)
AnyRun = TypeVar("AnyRun", bound=Run)


class Queueing(Generic[Key, AnyRun]):
    """The default for executors whose processes run one job at a time and queue none: no run waits."""

    runs: dict[Key, AnyRun]

    @property
    def taken(self) -> int:
        """Slots in use."""
        return len(self.runs)

    @property
    def only_high(self) -> bool:
        """True while no jobs below HIGH may come."""
        return False

    @property
    def queued(self) -> Sequence[Run]:
        """Runs that have not begun."""
        return ()

    def prefetch_room(self, lanes: int, free: int) -> int:
        """Return how many jobs may be prefetched."""
        return 0

    def prefetch(self, claimed: Claimed, limit: float, lanes: int) -> Run | None:
        """Queue a job behind another; None if that is not possible."""
        return None

    def exchanged(self, seconds: float, jobs: int) -> None:
        """Record one exchange with Redis: how long it took, and how many jobs it moved."""

    def return_queued(self, why: str) -> None:
        """Give back the runs that have not begun."""

    def send_queued(self) -> None:
        """Send the jobs that were given since the last call."""
