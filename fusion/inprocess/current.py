"""The job that a piece of code runs for, as that code sees it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextvars import ContextVar
from math import inf

from fusion.exceptions import JobTimeoutException
from fusion.inprocess.clock import Clock
from fusion.inprocess.job import ActiveRun


class ActiveJob:
    """The job that this code runs for."""

    def __init__(self, run: ActiveRun, clock: Clock, stopping: Callable[[], bool]) -> None:
        self._run, self._clock, self._stopping = run, clock, stopping
        self.id: Hashable = run.job.id
        self.name = run.job.name

    @property
    def remaining(self) -> float | None:
        """Seconds until its time is over, negative after that; None if it has any time."""
        left = self._run.deadline - self._clock.now()
        return None if left == inf else left

    @property
    def stopping(self) -> bool:
        """The manager was told to stop: a job that can leave the rest for later may raise now, and is Pending again."""
        return self._stopping()

    def check(self) -> None:
        """Raise JobTimeoutException if the job's time is over. Nothing else ends a thread: long jobs call this in their loops."""
        if self._clock.now() >= self._run.deadline:
            raise JobTimeoutException(f"job {self.name!r} ran longer than its timeout")


current_job: ContextVar[ActiveJob | None] = ContextVar("fusion_inprocess_current_job", default=None)


def get_current_job() -> ActiveJob | None:
    """The job that this code runs for; None outside of one.

    asyncio tasks that a job starts know it, too; threads that it starts don't.
    """
    return current_job.get()
