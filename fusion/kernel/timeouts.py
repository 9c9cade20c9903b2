"""The soft timeout: JobTimeoutException is raised in the running task, and again every second until the task ends.

It is a request, not a guarantee: C loops, bare `except` and changed signal settings evade it. The fork server's SIGKILL at `timeout + grace`
is the guarantee.

Signal handlers raise anything else in a task by `strike`, since some places must not be interrupted.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found, unused-ignore]  # the wrappers in `signal` make enum members: slow after a fork
import _thread
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from time import monotonic
from types import FrameType, TracebackType

from fusion.exceptions import JobTimeoutException
from fusion.kernel.defaults import FURTHEST
from fusion.kernel.sentences import EXCEEDED

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from typing import Any, TypeVar

    T = TypeVar("T")

_set_handler, _setitimer, _SIGALRM, _SIG_DFL, _REAL = (
    _signal.signal,
    _signal.setitimer,
    _signal.SIGALRM,
    _signal.SIG_DFL,
    _signal.ITIMER_REAL,
)
#: Seconds between two raises, for tasks that swallow the first.
REPEAT = 1.0


class _Raised:
    """The class of the error that a timeout raises, and the seconds until it is raised again; 0: it is raised once. Jobs of RQ's have others."""

    __slots__ = ("kind", "repeat")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Set both as they are for jobs of Fusion's."""
        self.kind, self.repeat = JobTimeoutException, REPEAT


raised = _Raised()
#: Most seconds that `deferred` delays an exception.
PATIENCE = 2.0
#: The message of the error that the interpreter raises instead of one raised while it wrote the message of an ImportError: neither refers to
#: the other.
_IN_PLACE = ("expected a message argument",)
#: Most links of a chain of errors that are followed.
_LONGEST_CHAIN = 100


class Hold:
    """Delays exceptions that are to be raised in a thread, during its sections of `deferred` and `held`.

    `depth` counts both kinds of section, `firm` only those of `held`. `due` is the error that waits for their end, `since` a monotonic time.
    `struck`: something was raised in the thread since the last query. `raised`: the last error that a signal handler raised, while it may
    still be queried. `loop`: the event loop that was asked to raise something and has not done so yet.
    """

    __slots__ = ("depth", "due", "firm", "loop", "raised", "since", "struck")

    def __init__(self) -> None:
        self.depth = self.firm = 0
        self.due: BaseException | None = None
        self.raised: BaseException | None = None
        self.loop: Any = None
        self.since = 0.0
        self.struck = False

    def keeps_out(self, error: BaseException) -> bool:
        """Return True if the error can't be raised now; it is raised as soon as that is allowed."""
        if self.depth:
            now = monotonic()
            if self.due is None:
                self.due, self.since = error, now
            if self.firm or now - self.since < PATIENCE:
                return True
        self.due, self.struck = None, True
        return False


#: Thread id -> hold, for each thread whose code may be interrupted.
holds: dict[int, Hold] = {}
#: The hold of a coroutine that runs beside others.
hold_of_coroutine: ContextVar[Hold | None] = ContextVar("fusion_hold", default=None)
#: The hold of the thread in which signal handlers run.
_of_handlers = Hold()


def nothing() -> None:
    """Do nothing: at a call, the interpreter raises what another thread has raised in this one."""


class deferred:
    """`with deferred():` delays exceptions of signal handlers and other threads to the end of the block; after `PATIENCE` they are raised
    inside.

    For code that would leave a harmful state if an exception were raised between two of its steps.
    """

    __slots__ = ("_hold", "_outer")
    _firm = 0

    def __enter__(self) -> None:
        self._hold = hold = holds.get(_thread.get_ident())
        if hold is not None:
            # No call after this: an exception may be raised only at a call.
            self._outer = depth, firm = hold.depth, hold.firm
            hold.firm = firm + self._firm
            hold.depth = depth + 1
            if hold.struck:
                try:
                    nothing()  # raises here what was raised just before: since Python 3.13 that comes one call later
                except BaseException:
                    hold.depth, hold.firm = self._outer
                    raise

    def __exit__(self, *exc: object) -> None:
        hold = self._hold
        if hold is None:
            return
        # Restore the values instead of subtracting one: an `__enter__` that was interrupted has no `__exit__`.
        hold.depth, hold.firm = self._outer
        if not hold.depth and (due := hold.due) is not None and not hold.keeps_out(due):
            raise due


class unbroken(deferred):
    """Like `deferred`, for a section that awaits: an exception that ends the job's coroutine waits for the section's end."""

    __slots__ = ()

    def __enter__(self) -> None:
        self._hold = hold = hold_of_coroutine.get()
        if hold is not None:
            self._outer = hold.depth, hold.firm
            hold.depth += 1


class held(deferred):
    """Like `deferred`, but without a limit: a half-written frame would corrupt the stream."""

    __slots__ = ()
    _firm = 1


def strike(error: BaseException) -> None:
    """Raise `error` in the code that a signal interrupted, now or as soon as `deferred` and `held` allow. For signal handlers."""
    if not _of_handlers.keeps_out(error):
        _of_handlers.raised = error
        raise error


class _LeavesLoop(KeyboardInterrupt):
    """Stops an event loop: any other exception of a callback stays inside the loop. `error`: the error that it stands for."""

    error: BaseException


def loop_raises(error: BaseException, *, between_steps: bool = False) -> bool:
    """Make the event loop that runs here raise `error` when it can. If interrupted in its own steps, the loop could lose one and wait for it
    for ever; and uvloop loses the error itself. False if there is no loop, or it was asked before and has not raised it, as one of its tasks
    computes. `between_steps`: also False while a task of the loop runs, where the error can be raised at once."""
    # a module that is just being imported may lack it
    running = getattr(sys.modules.get("asyncio.events"), "_get_running_loop", None)
    loop = running and running()
    if loop is None or loop is _of_handlers.loop:
        return False
    if between_steps and getattr(sys.modules.get("asyncio.tasks"), "current_task", _no_task)(loop) is not None:
        return False
    _of_handlers.loop = loop
    try:
        loop.call_soon_threadsafe(_leave_loop, error)
    except RuntimeError:  # it is closed
        return False
    return True


def _no_task(loop: object) -> None:
    return None


def _leave_loop(error: BaseException) -> None:
    _of_handlers.loop = None
    kind = type(error)
    left = type(kind.__name__, (kind, _LeavesLoop), {"__module__": kind.__module__})(*error.args)
    left.error = error
    raise left


def was_struck() -> bool:
    """Return True if `strike` raised something since the last call of this function: the interrupted code may have left work half done."""
    struck, _of_handlers.struck = _of_handlers.struck, False
    return struck


def _guarded(func: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
    return func(*args, **kwargs)


def is_guarded(frame: FrameType | None) -> bool:
    """Return True in code below a call of `run_with_timeout`: there a signal handler may raise, by `strike`."""
    while frame is not None:
        if frame.f_code is _guarded.__code__:
            return True
        frame = frame.f_back
    return False


def overrun(what: str, seconds: float) -> JobTimeoutException:
    """Return the error for a run whose `seconds` are over; `what` begins its message."""
    return raised.kind(f"{what} {EXCEEDED.format(s=f'{seconds:g}')}")


def run_with_timeout(seconds: float | None, what: str, func: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call `func`; JobTimeoutException is raised in it after `seconds` (None or <= 0: no limit). Main thread only.

    The alarm raises only while `func` is on the stack, so an alarm that comes late can't interrupt the caller.
    """
    if seconds is None or seconds <= 0:
        with _Thread():
            return _guarded(func, args, kwargs)

    with _Thread():
        previous = _set_handler(_SIGALRM, lambda signum, frame: _on_alarm(frame, what, seconds))
        try:
            _setitimer(_REAL, min(seconds, FURTHEST), raised.repeat)
            return _guarded(func, args, kwargs)
        finally:
            _setitimer(_REAL, 0)
            _set_handler(_SIGALRM, _SIG_DFL if previous is None else previous)


def _on_alarm(frame: FrameType | None, what: str, seconds: float) -> None:
    """Raise the timeout if the guarded function is on the stack; else leave the caller alone."""
    if is_guarded(frame) and not loop_raises(error := overrun(what, seconds), between_steps=True):
        strike(error)


def linked(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error, the errors that it was raised from or during, and the members of groups; the first hundred."""
    seen, left = 0, [error]
    while left and seen < _LONGEST_CHAIN:
        one, seen = left.pop(), seen + 1
        if one is not None:
            yield one
            left += (one.__context__, one.__cause__)
            if isinstance(one, BaseExceptionGroup):
                left += one.exceptions


class _Thread:
    """Marks this thread as the one in which `deferred` and `held` delay exceptions; the outermost one drops what is due at its end. If the
    interpreter raised another error in place of one, the original one leaves the block."""

    __slots__ = ("_ident", "_outer")

    def __enter__(self) -> None:
        self._ident = _thread.get_ident()
        self._outer = holds.get(self._ident)
        holds[self._ident] = _of_handlers

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        struck, _of_handlers.raised = _of_handlers.raised, None
        if self._outer is None:
            del holds[self._ident]
            _of_handlers.depth = _of_handlers.firm = 0
            _of_handlers.due = _of_handlers.loop = None
        if kind is not None and issubclass(kind, _LeavesLoop):  # a query of the error itself may raise
            assert isinstance(error, _LeavesLoop)
            raise error.error.with_traceback(tb) from None
        if struck is not None and any(type(one) is TypeError and one.args == _IN_PLACE for one in linked(error)):
            raise struck.with_traceback(tb) from error
