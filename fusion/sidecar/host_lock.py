"""A lock among the processes of one user on one host. The kernel frees it when its holder ends, however that ends."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
import time
from pathlib import Path

from fusion.exceptions import ConfigurationError
from fusion.store.redis_server.own_files import open_own, reason

#: Seconds between two touches of a file that is locked: what clears /tmp of old files takes those for old that nobody touched for days.
_TOUCH = 3600.0
#: The file holds two pids, each in this many bytes: the holder of the lock, and its heir.
_WIDTH = 16


def runtime_directory() -> Path:
    """The directory of this user's locks, made if need be. ConfigurationError if others have a say in it.

    Not the home directory, which several hosts may share, nor XDG_RUNTIME_DIR, which goes with the user's last login.
    """
    path = Path(tempfile.gettempdir(), f"fusion-{os.geteuid()}")
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise ConfigurationError(
            f"{path} can't be made: {reason(error)}; set TMPDIR to a directory that this user may write to", code="FUS-228"
        ) from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ConfigurationError(
            f"{path} is not a directory that only this user may change (mode {stat.S_IMODE(found.st_mode):o}, user {found.st_uid}): "
            "remove it, or set TMPDIR to another directory",
            code="FUS-228",
        )
    return path


class HostLock:
    """One of several processes has it, and nobody waits for it: a process that wants it asks again.

    A process that was started by the holder, not forked, is its *heir*: the same program, in the hands of a reloader or of an upgrade. It
    leaves word, and the holder should make room.
    """

    def __init__(self, name: str) -> None:
        """`name`: what is shared, in any words. ConfigurationError as `runtime_directory`."""
        self._path = runtime_directory() / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.lock"
        self._fd = -1
        self._touch_at = 0.0
        #: Who has it, as far as is known: a pid, 0 if nobody said.
        self.holder = 0

    @property
    def held(self) -> bool:
        """This process has it."""
        return self._fd >= 0

    def acquire(self) -> bool:
        """Try to take it. OSError if its file can't be opened, ConfigurationError as `runtime_directory`."""
        runtime_directory()
        fd = open_own(self._path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(
                os.fstat(fd), os.stat(self._path)
            ):  # else somebody removed it meanwhile, and another has its name
                self._own(fd)
        except BlockingIOError:
            self.holder = _read(fd, 0)
            if self.holder == os.getppid():
                _write(fd, _WIDTH, os.getpid())
        except FileNotFoundError:
            pass  # removed meanwhile
        finally:
            if fd != self._fd:
                os.close(fd)
        return self.held

    def _own(self, fd: int) -> None:
        self._fd, self.holder = fd, os.getpid()
        self._touch_at = 0.0
        _write(fd, 0, self.holder)
        _write(fd, _WIDTH, 0)

    def heir(self) -> int:
        """The pid of a living process that this one started and that asks for the lock; 0 if there is none."""
        if not self.held:
            return 0
        if time.monotonic() >= self._touch_at:
            self._touch_at = time.monotonic() + _TOUCH
            os.utime(self._fd)
        heir = _read(self._fd, _WIDTH)
        try:
            if heir:
                os.kill(heir, 0)
        except (OSError, OverflowError):
            return 0
        return heir

    def release(self) -> None:
        """Give it back, forked processes that may still have its descriptor notwithstanding."""
        if self.held:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            self.forget()

    def forget(self) -> None:
        """Close the descriptor and leave the lock to the process from which this one was forked."""
        if self.held:
            os.close(self._fd)
            self._fd = -1


class WorkerSeats:
    """Places for living workers of one host. A worker has its place until its process ends, whichever process started it, and even if that is gone.

    There are two: while one worker finishes its jobs, the next one may take others.
    """

    COUNT = 2

    def __init__(self, name: str) -> None:
        """`name`: as that of the HostLock. ConfigurationError as `runtime_directory`."""
        digest = hashlib.sha256(name.encode()).hexdigest()[:32]
        self._paths = [runtime_directory() / f"{digest}.{number}.seat" for number in range(self.COUNT)]

    def take(self) -> int | None:
        """Take a free place: the descriptor that the worker is to inherit, which has it until its last copy is closed. None if there is none."""
        runtime_directory()
        for path in self._paths:
            fd = open_own(path, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(fd), os.stat(path)):
                    os.utime(fd)
                    return fd
            except (BlockingIOError, FileNotFoundError):
                pass  # taken, or its file was removed meanwhile
            os.close(fd)
        return None


def _read(fd: int, at: int) -> int:
    text = os.pread(fd, _WIDTH, at).strip(b"\0\n ")
    return int(text) if text.isdigit() else 0


def _write(fd: int, at: int, pid: int) -> None:
    os.pwrite(fd, f"{pid:<{_WIDTH - 1}}\n".encode(), at)
