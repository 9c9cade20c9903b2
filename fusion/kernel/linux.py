"""Linux calls for managing child processes that the standard library lacks. On other systems (development) each does nothing."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


def _load(name: str) -> Callable[..., None] | None:
    """Return a function of the C library that takes ints; None if the library lacks it."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        import _ctypes  # `ctypes` makes some 40 types: 130 KiB in each fork server

        class Function(_ctypes.CFuncPtr):  # type: ignore[misc, name-defined, unused-ignore]
            _flags_ = _ctypes.FUNCFLAG_CDECL  # type: ignore[attr-defined, unused-ignore]
            _restype_ = None

        # No argtypes: with plain ints the call uses a third of the memory, which a fork would have to copy.
        return Function(_ctypes.dlsym(_ctypes.dlopen(None, 0), name))  # type: ignore[arg-type, attr-defined, no-any-return, unused-ignore]
    except (ImportError, OSError, AttributeError):
        return None


_prctl, _trim = _load("prctl"), _load("malloc_trim")


def set_parent_death_signal(signum: int) -> None:
    """Have the kernel send `signum` to this process when the thread that forked it ends; 0 turns it off."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signum)


def become_subreaper() -> None:
    """Make orphans below this process its children instead of init's."""
    if _prctl is not None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def give_back_memory() -> None:
    """Return memory that the C library keeps in reserve to the system. A process that forks would otherwise have each child copy the tables
    of these pages."""
    if _trim is not None:
        _trim(0)


def close_to_others() -> None:
    """Allow no core dump of this process, and only root to read its memory and environment. An exec ends this: programs that it starts are as
    open as ever."""
    global _core_before
    _core_before, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    if _prctl is not None:
        _prctl(_PR_SET_DUMPABLE, 0)


_core_before: int | None = None


def core_limit_before() -> int | None:
    """Return the soft core limit that `close_to_others` lowered, for programs that this process starts; None if it did not lower it."""
    return _core_before


_pread = os.pread
#: Bytes of one read of the list of children.
_SOME = 4096


class Children:
    """The child processes of this one, zombies included."""

    def __init__(self) -> None:
        pid = os.getpid()
        self._me = str(pid)
        try:
            self.fd: int = os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # a kernel without CONFIG_PROC_CHILDREN, or no /proc at all
            self.fd = -1

    def pids(self) -> list[int]:
        """Return the pids of all children now, in no order. Off Linux, or where the kernel does not list them, by reading all of /proc."""
        if self.fd < 0:
            return [pid for pid, parent, _ in processes() if parent == int(self._me)]
        found = b""
        while True:
            data = _pread(self.fd, _SOME, len(found))
            found += data
            if len(data) < _SOME - 96:  # it comes in pages, each full except for a few bytes
                return list(map(int, found.split()))


def processes() -> list[tuple[int, int, int]]:
    """Return (pid, parent, session) of every process in /proc; empty without /proc."""
    found = []
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    # The command's name may hold blanks and brackets; after the last bracket there are only numbers.
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            found.append((int(name), int(fields[1]), int(fields[3])))
    return found


def rss(pid: int) -> int:
    """Return the resident bytes of a process; 0 if it is gone, or there is no /proc."""
    try:
        fd = os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)  # a file object takes nine system calls
        try:
            return int(os.read(fd, 256).split()[1]) * os.sysconf("SC_PAGESIZE")
        finally:
            os.close(fd)
    except (OSError, ValueError, IndexError):
        return 0


def thread_count() -> int:
    """Return the number of threads of this process; native ones are included if /proc lists them."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        threading = sys.modules.get("threading")
        return threading.active_count() if threading is not None else 1


def threads_above(before: int, within: float = 0.1) -> int:
    """Return by how many the threads of this process are more than `before`, and stay so for `within` seconds: the kernel lists a thread that was
    joined for a moment longer."""
    until = time.monotonic() + within
    while (more := thread_count() - before) > 0 and time.monotonic() < until:
        time.sleep(0.002)
    return max(more, 0)


def connected_sockets() -> set[int]:
    """Return the descriptors of this process's connected stream sockets. After a fork two processes would read from one."""
    import _socket

    found = set()
    try:
        names = os.listdir("/proc/self/fd")
    except OSError:
        names = [str(fd) for fd in range(1024)]
    for name in names:
        fd = int(name)
        try:
            probe = _socket.socket(fileno=fd)
        except OSError:  # not a socket, or the listing's own descriptor
            continue
        try:
            if probe.type & 0xF == _socket.SOCK_STREAM:
                probe.getpeername()
                found.add(fd)
        except OSError:
            pass
        finally:
            probe.detach()
    return found


def signal_name(signum: int) -> str:
    """Return `SIGSEGV`; `signal 42` for one without a name."""
    import signal  # makes enums, which a process that only forks does without

    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"
