"""The exceptions of jobs that run too long, and RQ's limits for a block of code."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from fusion.exceptions import JobTimeoutException as _Fusions
from fusion.rq.hints import missing


class BaseTimeoutException(Exception):
    """Base of RQ's timeouts."""


class JobTimeoutException(_Fusions, BaseTimeoutException):
    """Raised in a job of RQ's at its timeout. Unlike Fusion's own it is an Exception, so `except Exception` catches it."""


class HorseMonitorTimeoutException(BaseTimeoutException):
    """RQ's wake-up of its worker. Fusion raises it nowhere."""


class BaseDeathPenalty:
    """`with UnixSignalDeathPenalty(5, JobTimeoutException):` raises the exception in the block after these seconds."""

    def __init__(self, timeout: float, exception: type[BaseException] = BaseTimeoutException, **kwargs: Any) -> None:
        self._timeout, self._exception = timeout, exception

    def __enter__(self) -> None:
        self.setup_death_penalty()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        try:
            self.cancel_death_penalty()
        except BaseTimeoutException:
            pass  # it came while the block ended

    def setup_death_penalty(self) -> None:
        """Begin the time."""
        raise NotImplementedError

    def cancel_death_penalty(self) -> None:
        """End the time."""
        raise NotImplementedError


class UnixSignalDeathPenalty(BaseDeathPenalty):
    """By the alarm signal: for the main thread alone."""

    def handle_death_penalty(self, signum: int, frame: FrameType | None) -> None:
        """Raise the exception."""
        raise self._exception(f"Task exceeded maximum timeout value ({self._timeout} seconds)")

    def setup_death_penalty(self) -> None:
        """Begin the time."""
        signal.signal(signal.SIGALRM, self.handle_death_penalty)
        signal.setitimer(signal.ITIMER_REAL, max(0.0, self._timeout))

    def cancel_death_penalty(self) -> None:
        """End the time."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


class TimerDeathPenalty(BaseDeathPenalty):
    """By a thread that raises the exception in this one: for any thread, between two steps of Python alone."""

    def __init__(self, timeout: float, exception: type[BaseException] = JobTimeoutException, **kwargs: Any) -> None:
        super().__init__(timeout, exception, **kwargs)
        self._ident = threading.get_ident()
        self._timer: threading.Timer | None = None

    def handle_death_penalty(self) -> None:
        """Raise the exception in the thread of the block."""
        import ctypes

        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._ident), ctypes.py_object(self._exception))

    def new_timer(self) -> threading.Timer:
        """Return a timer that has not begun."""
        timer = threading.Timer(self._timeout, self.handle_death_penalty)
        timer.daemon = True
        return timer

    def setup_death_penalty(self) -> None:
        """Begin the time."""
        if self._timeout > 0:
            self._ident, self._timer = threading.get_ident(), self.new_timer()
            self._timer.start()

    def cancel_death_penalty(self) -> None:
        """End the time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def get_default_death_penalty_class() -> type[BaseDeathPenalty]:
    """Return the class for this platform."""
    return UnixSignalDeathPenalty if hasattr(signal, "SIGALRM") else TimerDeathPenalty


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
