"""Detects what a job leaves in a warm horse: its state after each job is compared with that before the first. If it differs, the process is
replaced.

Each fact is read in the cheapest way that shows a change, as this is a large part of the cost of a short job. The comparison can't see a
module's globals or an open file; `isolate=True` is for jobs that leave those.
"""

from __future__ import annotations

import _locale
import _signal  # type: ignore[import-not-found, unused-ignore]  # the wrappers in `signal` make enum members: slow after a fork
import fcntl
import gc
import os
import resource
import select
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
    "environment",
    "sys.path",
    "nice value",
    "resource limits",
    "standard streams",
    "locale",
    "interpreter settings",
    "threads",
    "descriptors",
    "child processes",
)
#: Descriptors that all jobs together may leave open, but at most half of the process's limit.
_KEPT = 256
_REAL, _VIRTUAL, _PROF = _signal.ITIMER_REAL, _signal.ITIMER_VIRTUAL, _signal.ITIMER_PROF
_SOFT_MASK = 0o077


class Leftovers:
    """The state of this process as it was before its first job."""

    def __init__(self, spare_fd: int) -> None:
        """`spare_fd`: the least number for its own descriptors."""
        self._tasks = _open("/proc/self/task", spare_fd)
        # The list has the children of this thread only. So it is not used if there are others, which leave their children to this one.
        self._children = _open("/proc/thread-self/children", spare_fd) if self._threads() == 1 else -1
        lowest = _lowest_free(self._tasks)
        #: If the lowest free descriptor reaches this number, too many are open: a task may keep some (a client, a log file), but a leak has
        #: no end.
        self._too_many = lowest + min(_KEPT, (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - lowest) // 2)
        #: Polls the highest free number below that. While it is free, not too many are open: a leak reaches it last.
        self._last = select.poll()
        self._last.register(_highest_free(lowest, self._too_many), 0)
        self._before = (*self._look()[:-1], False)

    def _look(self) -> tuple[Any, ...]:
        """Return the state, in the order of `_NAMES`. The last two parts are hints: `found` checks whether a change of them matters."""
        timer, mask = _signal.getitimer, os.umask(_SOFT_MASK)
        os.umask(mask)
        return (
            os.getpgrp(),
            (os.geteuid(), os.getegid()),
            _signal.pthread_sigmask(_signal.SIG_BLOCK, ()),
            [*map(_signal.getsignal, _SIGNALS)],
            (timer(_REAL)[0] > 0, timer(_VIRTUAL)[0] > 0, timer(_PROF)[0] > 0),
            os.getcwd(),
            mask,
            type(os.environ),
            os.environ._data.copy(),  # type: ignore[attr-defined]
            sys.path.copy(),
            os.getpriority(os.PRIO_PROCESS, 0),
            [*map(resource.getrlimit, _LIMITS)],
            _streams(),
            _locale.setlocale(_locale.LC_ALL, None),
            (sys.getrecursionlimit(), sys.gettrace(), sys.getprofile(), gc.isenabled()),
            self._threads(),
            self._last.poll(0),
            os.pread(self._children, 1, 0) != b"" if self._children >= 0 else _has_children(),
        )

    def found(self) -> bytes:
        """Return the names of the parts that changed; empty if none did."""
        try:
            now = self._look()
            if now == self._before:
                return b""
            left = {name: None for name, here, before in zip(_NAMES, now, self._before, strict=True) if here != before}
            for hint, matters in (("descriptors", self._used_up), ("child processes", _has_children)):
                if hint in left and not matters():
                    del left[hint]
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
            return os.fstat(self._tasks).st_nlink - 2
        threading = sys.modules.get("threading")
        return threading.active_count() if threading is not None else 1


def _open(path: str, spare_fd: int) -> int:
    """Open a file of /proc with a high number, and return that; -1 if there is no such file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        lifted = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, spare_fd)
    except OSError:  # a hard limit below that
        return fd
    os.close(fd)
    return lifted


def _highest_free(lowest: int, end: int) -> int:
    """Return the highest number below `end` that no descriptor has. `lowest`: the lowest such number."""
    for fd in range(end - 1, lowest, -1):
        try:
            fcntl.fcntl(fd, fcntl.F_GETFD)
        except OSError:
            return fd
    return lowest


def _lowest_free(open_fd: int) -> int:
    fd = fcntl.fcntl(open_fd, fcntl.F_DUPFD_CLOEXEC, 0) if open_fd >= 0 else os.open("/", os.O_RDONLY | os.O_CLOEXEC)
    os.close(fd)
    return fd


def _streams() -> tuple[Any, ...]:
    objects = id(sys.stdin), id(sys.stdout), id(sys.stderr)
    try:
        return objects, os.fstat(0)[1:3], os.fstat(1)[1:3], os.fstat(2)[1:3]  # number and device
    except OSError:  # one is closed
        return objects, *map(_file_of, (0, 1, 2))


def _file_of(fd: int) -> Any:
    try:
        return os.fstat(fd)[1:3]
    except OSError:
        return None


def _has_children() -> bool:
    """True if this process has children, zombies and adopted orphans included."""
    if not hasattr(os, "waitid"):
        return False
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
