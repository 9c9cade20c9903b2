"""What a run asks of whoever keeps its limits: types only, which no process loads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Judge(Protocol):
    """Knows what ends one run before its time."""

    #: Other jobs run in this process at the same time.
    among_others: bool

    def run_coroutine(self, coroutine: Any, /) -> Any:
        """Run the coroutine that a task, or its callback, turned out to be, and return its result."""

    def ended_by_stop(self, error: BaseException, /) -> bool:
        """The task was told to stop, and ended with this error because of that."""

    def check(self) -> None:
        """Raise what the task is to end by, if it is."""


class Guard(Judge, Protocol):
    """Keeps the soft limits of one run, and has it stop when it is told to; the module `stopping` does, for a process."""

    def run_task(self, seconds: float | None, func: Callable[[], Any], /) -> Any:
        """Call `func`; JobTimeoutException is raised in it after so many seconds, JobStopped when the task is to stop."""

    def run_with_timeout(self, seconds: float | None, what: str, func: Callable[[], Any], /) -> Any:
        """Call `func`; JobTimeoutException is raised in it after so many seconds."""
