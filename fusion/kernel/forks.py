"""Ends a process that a task has forked and that returns from the task's code, as Python ends a program."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found, unused-ignore]  # the wrappers in `signal` make enum members: slow after a fork
import os
import sys
from types import TracebackType

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from typing import NoReturn

# Their values before any task module was loaded.
_getpid, _exit, _kill = os.getpid, os._exit, os.kill


class ends_forks:
    """`with ends_forks():` around a call of the user's code: a process that was forked inside never leaves the block."""

    __slots__ = ("_pid",)

    def __enter__(self) -> None:
        self._pid = _getpid()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if _getpid() != self._pid:
            end_fork(error, tb)


def end_fork(error: BaseException | None, tb: TracebackType | None) -> NoReturn:
    """End this process, a fork of a task, as Python ends a program: with its error, or normally."""
    code = 1
    try:
        code = _report(error, tb)
        _wind_up()
    finally:
        _flush()
        if isinstance(error, KeyboardInterrupt):
            _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
            _kill(_getpid(), _signal.SIGINT)
        _exit(code)


def _report(error: BaseException | None, tb: TracebackType | None) -> int:
    """Print the error as Python would. Returns the exit code."""
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        sys.excepthook(type(error), error, tb and tb.tb_next)  # without the frame of the block
        return 1
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def _wind_up() -> None:
    """Wait for the threads of this process, and call its exit handlers."""
    if (pools := sys.modules.get("concurrent.futures.thread")) is not None:  # the thread of a pool does not wait for itself
        pools._threads_queues.pop(sys.modules["threading"].current_thread(), None)
    for module, name in (("threading", "_shutdown"), ("atexit", "_run_exitfuncs")):
        if (found := sys.modules.get(module)) is not None:
            try:
                getattr(found, name)()
            except BaseException:
                sys.excepthook(*sys.exc_info())


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # closed, or replaced by something else
            continue
