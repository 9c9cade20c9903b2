"""Detects what a job leaves in a warm horse: its state after each job is compared with that before the first. If it differs, the process is
replaced.

The comparison takes only a few system calls. It can't see a module's globals or an open file; `isolate=True` is for jobs that leave those.
"""

from __future__ import annotations

import _locale
import _signal  # type: ignore[import-not-found, unused-ignore]  # the wrappers in `signal` make enum members: slow after a fork
import fcntl
import gc
import os
import resource
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from typing import Any

#: Limits that could make a later job fail.
_LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_DATA, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)
_SIGNALS = [number for number in range(1, _signal.NSIG) if number not in (_signal.SIGKILL, _signal.SIGSTOP)]
_NAMES = (
    "process group",
    "user",
    "signal mask",
    "signal handlers",
    "timers",
    "working directory",
    "umask",
    "environment",
    "sys.path",
    "nice value",
    "resource limits",
    "standard streams",
    "locale",
    "interpreter settings",
    "threads",
    "descriptors",
)
#: Descriptors that all jobs together may leave open, but at most half of the process's limit.
_KEPT = 256
_TIMERS = (_signal.ITIMER_REAL, _signal.ITIMER_VIRTUAL, _signal.ITIMER_PROF)


class Leftovers:
    """The state of this process as it was before its first job."""

    def __init__(self, spare_fd: int) -> None:
        """`spare_fd`: the least number for its own descriptor."""
        self._tasks = _open_tasks(spare_fd)
        lowest = _lowest_free(self._tasks)
        #: If the lowest free descriptor reaches this number, too many are open: a task may keep some (a client, a log file), but a leak has
        #: no end.
        self._too_many = lowest + min(_KEPT, (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - lowest) // 2)
        self._before = self._look()

    def _look(self) -> tuple[Any, ...]:
        """Return the state, in the order of `_NAMES`. It is one expression, as this is a large part of the cost of a short job."""
        return (
            os.getpgrp(),
            (os.geteuid(), os.getegid()),
            _signal.pthread_sigmask(_signal.SIG_BLOCK, ()),
            [*map(_signal.getsignal, _SIGNALS)],
            [timer[0] > 0 for timer in map(_signal.getitimer, _TIMERS)],
            os.getcwd(),
            _umask(),
            (type(os.environ), os.environ._data.copy()),  # type: ignore[attr-defined]
            sys.path.copy(),
            os.getpriority(os.PRIO_PROCESS, 0),
            [*map(resource.getrlimit, _LIMITS)],
            _streams(),
            _locale.setlocale(_locale.LC_ALL, None),
            (sys.getrecursionlimit(), sys.gettrace(), sys.getprofile(), gc.isenabled()),
            self._threads(),
            self._used_up(),
        )

    def found(self) -> bytes:
        """Return the names of the parts that changed; empty if none did."""
        try:
            now = self._look()
            if now == self._before and not _has_children():
                return b""
            left = [name for name, here, before in zip(_NAMES, now, self._before, strict=True) if here != before]
            if _has_children():
                left.append("child processes")
            return ", ".join(left).encode()
        except BaseException as error:  # a deleted working directory, a closed descriptor, an object with its own __eq__
            return type(error).__name__.encode("ascii", "replace")

    def _used_up(self) -> bool:
        """Return True if the next job might get no descriptor, as too many are open."""
        try:
            return _lowest_free(self._tasks) >= self._too_many
        except OSError:
            return True

    def _threads(self) -> int:
        if self._tasks >= 0:
            return os.fstat(self._tasks).st_nlink
        threading = sys.modules.get("threading")
        return threading.active_count() if threading is not None else 1


def _open_tasks(spare_fd: int) -> int:
    try:
        fd = os.open("/proc/self/task", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        lifted = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, spare_fd)
    except OSError:  # a hard limit below that
        return fd
    os.close(fd)
    return lifted


def _lowest_free(open_fd: int) -> int:
    fd = fcntl.fcntl(open_fd, fcntl.F_DUPFD_CLOEXEC, 0) if open_fd >= 0 else os.open("/", os.O_RDONLY | os.O_CLOEXEC)
    os.close(fd)
    return fd


def _umask() -> int:
    value = os.umask(0o077)
    os.umask(value)
    return value


def _streams() -> list[Any]:
    found: list[Any] = [id(sys.stdin), id(sys.stdout), id(sys.stderr)]
    for fd in (0, 1, 2):
        try:
            stat = os.fstat(fd)
            found.append((stat.st_dev, stat.st_ino))
        except OSError:
            found.append(None)
    return found


def _has_children() -> bool:
    """True if this process has children, zombies and adopted orphans included."""
    if not hasattr(os, "waitid"):
        return False
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
