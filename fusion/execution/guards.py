"""The interface between a run and the guard of its limits. Types only: no process loads this module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Judge(Protocol):
    """Knows the exceptions that end one run early."""

    #: True if other jobs run in this process at the same time.
    among_others: bool

    def run_coroutine(self, coroutine: Any, /) -> Any:
        """Run the coroutine that a task or its callback returned; return its result."""

    def ended_by_stop(self, error: BaseException, /) -> bool:
        """Return True if the task ended with this error because it was asked to stop."""

    def check(self) -> None:
        """Raise the exception that should end the task, if there is one."""


class Guard(Judge, Protocol):
    """Enforces the soft limits of one run, and stops it on request. For a process the module `stopping` does that."""

    def run_task(self, seconds: float | None, func: Callable[[], Any], /) -> Any:
        """Call `func`. Raise JobTimeoutException in it after that many seconds, or JobStopped if the task is to stop."""

    def run_with_timeout(self, seconds: float | None, what: str, func: Callable[[], Any], /) -> Any:
        """Call `func`. Raise JobTimeoutException in it after that many seconds."""
