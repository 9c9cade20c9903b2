"""The soft limits of a task that runs in a thread: another thread, the watcher, raises the exception that ends the task.

The interpreter raises it at the thread's next call or loop iteration. That can be anywhere, so locks may stay taken (the process is
`tainted`), but not while the thread waits in C. It is never raised in sections of `deferred` and `held`, and only while the guarded function
is on the stack. An import first gets two seconds to finish: an interrupted import stays broken for the other jobs of the process. Loaded only
where many jobs run in one process.
"""

from __future__ import annotations

import ctypes
import importlib._bootstrap as _bootstrap
import sys
import threading
from _thread import get_ident
from collections.abc import Callable
from math import inf
from time import monotonic

from fusion.exceptions import JobStopped
from fusion.kernel.stopping import WHAT, leads_to
from fusion.kernel.timeouts import PATIENCE, REPEAT, Hold, held, holds, nothing, overrun

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from typing import Any, TypeVar

    T = TypeVar("T")

#: Seconds until a thread in a section of `deferred` or `held` is checked again.
_SOON = 0.02
_LONGEST_WAIT = 3600.0

#: On the stack of a thread that imports a module.
_IMPORTS: Any = _bootstrap._find_and_load.__code__  # type: ignore[attr-defined, unused-ignore]

# The GIL is kept for the call.
_raise_in = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)(("PyThreadState_SetAsyncExc", ctypes.pythonapi))
_withdraw = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)(("PyThreadState_SetAsyncExc", ctypes.pythonapi))


class Watcher:
    """A thread that interrupts those guarded calls of this process that are due."""

    def __init__(self) -> None:
        """Start the thread."""
        self._guards: set[ThreadGuard] = set()
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._wake_at = inf
        threading.Thread(target=self._watch, name="fusion-watcher", daemon=True).start()

    def add(self, guard: ThreadGuard) -> None:
        """Watch this guard, too."""
        with self._lock:
            self._guards.add(guard)
            self._expect(guard.next_at)

    def remove(self, guard: ThreadGuard) -> None:
        """Stop watching a guard: once this returns, it is not interrupted any more."""
        with self._lock:
            self._guards.discard(guard)

    def hurry(self, guard: ThreadGuard) -> None:
        """Check now: something is due."""
        with self._lock:
            guard.next_at = 0.0
            if guard in self._guards:
                self._expect(0.0)

    def _expect(self, at: float) -> None:
        if at < self._wake_at:
            self._wake_at = at
            self._news.set()

    def _watch(self) -> None:
        while True:
            self._news.wait(max(0.0, min(self._wake_at - monotonic(), _LONGEST_WAIT)))
            with self._lock:
                self._news.clear()
                now = monotonic()
                for guard in self._guards:
                    if guard.next_at <= now:
                        guard.strike(now)
                self._wake_at = min((guard.next_at for guard in self._guards), default=inf)


class ThreadGuard:
    """Enforces the limits of one run, in whichever thread calls it; see `execution.perform.Guard`. One call at a time.

    `next_at`: monotonic time at which the watcher calls `strike`.
    """

    among_others = True

    def __init__(self, watcher: Watcher, taints: Callable[[str], None]) -> None:
        """`taints` is called with a reason before something is raised at an arbitrary place."""
        self._watcher, self._taints = watcher, taints
        self._hold = Hold()
        self._ident = 0
        self._what, self._seconds, self._until = "", 0.0, inf
        self._can_stop = self._stopped = self._put_off = False
        self._checked_at = -inf
        #: Since when an import has delayed what is due.
        self._importing_since = inf
        self._loop: Any = None
        self._loop_asked = False
        self.next_at = inf

    def run_task(self, seconds: float | None, func: Callable[[], T]) -> T:
        """Call `func`; JobTimeoutException is raised in it after `seconds` (None or <= 0: no limit), JobStopped at `stop`."""
        self._can_stop = True
        try:
            return self.run_with_timeout(seconds, "Task", func)
        finally:
            self._can_stop = False

    def run_with_timeout(self, seconds: float | None, what: str, func: Callable[[], T]) -> T:
        """Call `func`; JobTimeoutException is raised in it after `seconds` (None or <= 0: no limit)."""
        self._begin(seconds, what)
        hold = self._hold
        try:
            try:
                if (error := self._due(monotonic())) is not None:
                    raise error
                hold.depth = 0  # from here on it may be interrupted,
                return func()
            finally:
                nothing()  # a call: whatever is under way has been raised by now
        finally:
            hold.depth = 1  # up to here
            try:
                if hold.struck:
                    nothing()  # since Python 3.13 it may come a call later
            finally:
                self._end()

    def _begin(self, seconds: float | None, what: str) -> None:
        self._what, self._seconds, self._until = what, seconds or 0.0, inf
        if self._seconds > 0:
            self._until = monotonic() + self._seconds
        self._ident, hold = get_ident(), self._hold
        hold.depth, hold.firm, hold.due, hold.struck = 1, 0, None, False
        self._checked_at, self.next_at, self._put_off, self._importing_since = -inf, self._until, False, inf
        holds[self._ident] = hold
        self._watcher.add(self)

    def _end(self) -> None:
        self._watcher.remove(self)
        if self._hold.struck:
            _take_back(self._ident)
        del holds[self._ident]
        self._until = inf

    def run_coroutine(self, coroutine: Any) -> Any:
        """Run a coroutine and return its result. Its event loop raises what is due between two of its steps: an interrupted loop could lose
        it."""
        with held():  # interrupted half way, it would fail in each other job of this process, too
            import asyncio

        with asyncio.Runner() as runner:
            self._loop, self._loop_asked = runner.get_loop(), False
            try:
                return runner.run(coroutine)
            except _LeaveLoop as left:
                raise left.error.with_traceback(left.__traceback__) from None
            finally:
                self._loop = None

    def stop(self) -> None:
        """End the task by JobStopped, if it runs or has not begun. May be called from any thread."""
        self._stopped = True
        self._watcher.hurry(self)

    def ended_by_stop(self, error: BaseException) -> bool:
        """Return True if a stop of the task was requested, and this error is due to that."""
        return self._stopped and leads_to(error, (JobStopped,))

    def check(self) -> None:
        """Raise what is due, in the calling thread. A task that calls this once a second is interrupted nowhere else."""
        self._checked_at = now = monotonic()
        if (error := self._due(now)) is not None:
            raise error

    def _due(self, now: float) -> BaseException | None:
        if self._can_stop and self._stopped:
            return JobStopped(WHAT)
        return overrun(self._what, self._seconds) if now >= self._until else None

    def strike(self, now: float) -> None:
        """Raise what is due, or set `next_at` to the time of the next check. For the watcher."""
        error = self._due(now)
        self.next_at = now + REPEAT if error is not None else self._until
        put_off, self._put_off = self._put_off, False
        if error is None or (put_off and self._hold.due is None):  # raised at the end of a section
            return
        if isinstance(error, JobStopped) and self._cleans_up():
            return
        if now - self._checked_at < REPEAT:
            self.next_at = self._checked_at + REPEAT
        elif self._imports(now):
            self.next_at = now + _SOON
        elif not self._ask_loop(error):
            self._raise(error, now)

    def _cleans_up(self) -> bool:
        """Return True while the task handles a stop, for which it has its grace period."""
        found: Any = sys._current_exceptions().get(self._ident)
        return leads_to(found[1] if isinstance(found, tuple) else found, (JobStopped,))  # a tuple before Python 3.12

    def _imports(self, now: float) -> bool:
        """Return True while the thread imports a module outside of a section, for at most two seconds."""
        if self._hold.depth or self._hold.firm:  # what is due is raised at its end
            return False
        frame = sys._current_frames().get(self._ident)
        while frame is not None and frame.f_code is not _IMPORTS:
            frame = frame.f_back
        if frame is None:
            self._importing_since = inf
            return False
        self._importing_since = min(self._importing_since, now)
        return now - self._importing_since < PATIENCE

    def _ask_loop(self, error: BaseException) -> bool:
        """Make the event loop that runs there raise the error. False if there is none, or it was asked before and has not raised it yet."""
        loop = self._loop
        if loop is None or self._loop_asked:
            return False
        try:
            loop.call_soon_threadsafe(self._leave_loop, error)
        except RuntimeError:  # it is closed
            return False
        self._loop_asked = True
        return True

    def _leave_loop(self, error: BaseException) -> None:
        self._loop_asked = False
        raise _LeaveLoop(error)

    def _raise(self, error: BaseException, now: float) -> None:
        hold, ident, as_class = self._hold, self._ident, _class_for(error)
        late = hold.due is not None and now - hold.since >= PATIENCE
        if not (hold.firm or (hold.depth and not late)):
            self._taints(str(error))
        # Check again; no call may come between check and raise, since only at a call could that thread run, and enter a section.
        if hold.firm or (hold.depth and not late):
            if hold.due is None:
                hold.due, hold.since = error, now
            self.next_at, self._put_off = now + _SOON, True
        else:
            hold.due, hold.struck = None, True
            _raise_in(ident, as_class)


class _LeaveLoop(KeyboardInterrupt):
    """Stops an asyncio event loop: any other exception of a callback stays inside the loop."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class _TakenBack(BaseException):
    pass


def _take_back(ident: int) -> None:
    """Cancel an exception that is to be raised in this thread.

    It raises something else in its place. Before Python 3.13 the interpreter goes on checking for it, in all threads of the process, until
    something is raised. After a mere withdrawal it would check at each call, and on 3.11 a traced thread would get no further than its next
    call.
    """
    try:
        _raise_in(ident, _TakenBack)
        nothing()
    except _TakenBack:
        pass
    except BaseException:  # from a signal's handler, which comes first
        _withdraw(ident, None)
        raise


def _class_for(error: BaseException) -> type[BaseException]:
    """Return a class whose call returns the error: only a class can be raised in another thread."""
    kind = type(error)
    return type(kind.__name__, (kind,), {"__new__": lambda cls, *args: error, "__module__": kind.__module__})
