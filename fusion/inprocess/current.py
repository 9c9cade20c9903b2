"""The current job, as its own code sees it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextvars import ContextVar
from math import inf

from fusion.exceptions import JobTimeoutException
from fusion.inprocess.clock import Clock
from fusion.inprocess.job import ActiveRun


class ActiveJob:
    """The current job of the calling code."""

    def __init__(self, run: ActiveRun, clock: Clock, stopping: Callable[[], bool]) -> None:
        self._run, self._clock, self._stopping = run, clock, stopping
        self.id: Hashable = run.job.id
        self.name = run.job.name

    @property
    def remaining(self) -> float | None:
        """Return the seconds until its time is over, negative after that; None without a limit."""
        left = self._run.deadline - self._clock.now()
        return None if left == inf else left

    @property
    def stopping(self) -> bool:
        """True if the manager stops. A job that can do the rest later may raise now: then it is Pending again."""
        return self._stopping()

    def check(self) -> None:
        """Raise JobTimeoutException if the job's time is over. Nothing else can end a thread, so jobs that take long should call this in their
        loops."""
        if self._clock.now() >= self._run.deadline:
            raise JobTimeoutException(f"job {self.name!r} ran longer than its timeout")


current_job: ContextVar[ActiveJob | None] = ContextVar("fusion_inprocess_current_job", default=None)


def get_current_job() -> ActiveJob | None:
    """Return the current job; None outside of a job.

    asyncio tasks that a job starts get it, too; threads that it starts don't.
    """
    return current_job.get()
