"""The soft timeout: JobTimeoutException raised inside the running task, again every second until it gives up.

A request, not a guarantee: C loops, bare `except` and changed signal settings get around it. The fork server's SIGKILL at
`timeout + grace` is the guarantee.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found, unused-ignore]  # the wrappers in `signal` make enum members: slow after a fork
from collections.abc import Callable
from types import FrameType

from fusion.defaults import FURTHEST
from fusion.exceptions import JobTimeoutException

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from typing import Any, TypeVar

    T = TypeVar("T")

#: Seconds between two raises, for tasks that swallow the first.
REPEAT = 1.0


class _Hold:
    """While `count` is above zero the exception waits for the next tick: a frame half written would garble the stream."""

    count = 0


def _guarded(func: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
    return func(*args, **kwargs)


def _is_guarded(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code is _guarded.__code__:
            return True
        frame = frame.f_back
    return False


def run_with_timeout(seconds: float | None, what: str, func: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call `func`; JobTimeoutException is raised in it after `seconds` (None or <= 0: no limit). Main thread only.

    The alarm raises only while `func` is on the stack, so one that comes a moment too late can't hit the caller.
    """
    if seconds is None or seconds <= 0:
        return func(*args, **kwargs)

    def on_alarm(signum: int, frame: FrameType | None) -> None:
        if not _Hold.count and _is_guarded(frame):
            raise JobTimeoutException(f"{what} exceeded maximum timeout value ({seconds:g} seconds)")

    previous = _signal.signal(_signal.SIGALRM, on_alarm)
    try:
        _signal.setitimer(_signal.ITIMER_REAL, min(seconds, FURTHEST), REPEAT)
        return _guarded(func, args, kwargs)
    finally:
        _signal.setitimer(_signal.ITIMER_REAL, 0)
        _signal.signal(_signal.SIGALRM, _signal.SIG_DFL if previous is None else previous)


class held:
    """`with held():` keeps the timeout from striking inside; it strikes at its next tick."""

    def __enter__(self) -> None:
        _Hold.count += 1

    def __exit__(self, *exc: object) -> None:
        _Hold.count -= 1
