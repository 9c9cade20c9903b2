"""The interfaces of a run: to the guard of its limits, and to the call that it may share. Types only: no process loads this module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from fusion.context import CurrentJob
from fusion.execution.callbacks import DueCallback
from fusion.execution.hooks import Hooks


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


class BatchedRun(Protocol):
    """The run of one job that shares a call with others, step by step; see `execution.perform.Execution`."""

    fields: dict[bytes, bytes]
    job: CurrentJob
    callback: DueCallback | None

    def begin(self, *, shown: bool = True) -> None:
        """Begin the run."""

    def prepare(self) -> Callable[..., Any]:
        """Return the task's function."""

    def enter(self) -> None:
        """Enter the hooks of middleware."""

    def load(self) -> None:
        """Decode the arguments."""

    def succeeded(self, value: Any) -> None:
        """Take the result."""

    def failed(self, error: BaseException) -> None:
        """Take the error that ended the task."""

    def hooks_due(self) -> Hooks | None:
        """Return the hooks that must run after the task."""

    def call_back(self) -> None:
        """Call the callback."""

    def callback_failed(self, error: BaseException) -> None:
        """Take the error of the callback."""

    def finish(self) -> dict[bytes, bytes]:
        """Return the outcome frame."""
