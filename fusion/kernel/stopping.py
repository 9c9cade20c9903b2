"""The soft stop: a signal of the fork server raises JobStopped in the running task. The fork server repeats it until the task is over.

It is a request, not a guarantee, like the soft timeout: a task that evades it is killed after a grace period, by the fork server. Processes
without a handler for the signal ignore it. So it ends nothing before this process listens, and no program that the task has started.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found, unused-ignore]  # the wrappers in `signal` make enum members: slow after a fork
import sys
from collections.abc import Callable
from math import inf
from time import monotonic
from types import CoroutineType, FrameType

from fusion.exceptions import JobStopped
from fusion.kernel.timeouts import is_guarded, linked, loop_raises, overrun, strike
from fusion.kernel.timeouts import run_with_timeout as run_with_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from typing import Any, TypeVar

    T = TypeVar("T")

#: True if other jobs run in this process as well.
among_others = False
SIGNAL = _signal.SIGURG
WHAT = "the job was stopped"


class _Task:
    """The run of this process: a task, its limit in seconds and as a monotonic time, and whether a stop was requested."""

    __slots__ = ("limit", "runs", "stopped", "until")

    def __init__(self) -> None:
        self.runs = self.stopped = False
        self.limit, self.until = 0.0, inf


_task = _Task()


def listen() -> None:
    """Install the handler of the signal that stops this process's tasks."""
    _signal.signal(SIGNAL, _on_signal)


def run_task(seconds: float | None, func: Callable[..., T], *args: Any) -> T:
    """Call `func` as `run_with_timeout` does; JobStopped may be raised in it, too, and nowhere else."""
    _task.runs, _task.stopped = True, False
    _task.limit, _task.until = (seconds, monotonic() + seconds) if seconds else (0.0, inf)
    try:
        return run_with_timeout(seconds, "Task", func, *args)
    finally:
        _task.runs = False


def run_coroutine(coroutine: CoroutineType[Any, Any, T]) -> T:
    """Run a coroutine and return its result."""
    import asyncio

    return asyncio.run(coroutine)


def check() -> None:
    """Raise JobStopped if a stop of the running task was requested, JobTimeoutException if its time is up: the task has swallowed that
    before."""
    if _task.runs:
        if _task.stopped:
            raise JobStopped(WHAT)
        if monotonic() >= _task.until:
            raise overrun("Task", _task.limit)


def ended_by_stop(error: BaseException) -> bool:
    """Return True if a stop of the last task was requested, and this error is due to that: it is JobStopped, or was raised while JobStopped
    was handled."""
    return _task.stopped and leads_to(error, (JobStopped,))


def _on_signal(signum: int, frame: FrameType | None) -> None:
    # A task that handles one already is cleaning up: the grace period limits that.
    if _task.runs and is_guarded(frame) and not leads_to(sys.exception(), (JobStopped,)):
        _task.stopped = True
        if not loop_raises(error := JobStopped(WHAT)):
            strike(error)


def leads_to(error: BaseException | None, kinds: tuple[type[BaseException], ...]) -> bool:
    """Return True if one of these kinds is among the error, the errors that it was raised from or during, and the members of groups."""
    return any(isinstance(one, kinds) for one in linked(error))
