"""Events to a file: one JSON object on each line. A large file is replaced by a new one."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fusion.events.document import to_line
from fusion.events.event import JobEvent
from fusion.events.sink import Rejected, SinkUnavailable

#: Bytes read at a time to find the end of the last whole line.
_BLOCK = 64 * 1024


class JsonLinesSink:
    """Appends to `path`. Above `max_bytes` the file is renamed to `path.1`, the former `path.1` to `path.2`, and so on, up to `backups`
    files.

    - any number of relays may write one file: a lock on `path.lock` protects each write and each change to a new file;
    - a batch is on the disk before it counts as delivered;
    - a partial line, from a killed writer or a full disk, is cut off: its event comes again. An event may be in the file twice, then with
      the same `id`.
    """

    name = "file"
    all_events = True

    def __init__(self, path: str, max_bytes: int, backups: int) -> None:
        self._path, self._max, self._backups = path, max_bytes, backups
        self._fd = -1
        self._lock_fd = -1

    def write(self, events: Sequence[JobEvent]) -> Sequence[Rejected]:
        """Append a batch. SinkUnavailable if it can't be written completely: then no part of it stays."""
        data = "".join(map(to_line, events)).encode()
        try:
            with self._locked():
                self._open(len(data))
                self._append(data)
        except OSError as error:
            self.close()
            raise SinkUnavailable(f"{self._path} can't be written: {error.strerror or error}") from None
        return ()

    def close(self) -> None:
        """Close the file."""
        for fd in (self._fd, self._lock_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock_fd = -1

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self._lock_fd < 0:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            self._lock_fd = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        fd = self._lock_fd
        fcntl.flock(fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)

    def _open(self, more: int) -> None:
        """Open the present file of `path`; start a new one if it has no room for `more` bytes."""
        if self._fd >= 0 and not self._is_current():
            os.close(self._fd)
            self._fd = -1
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        size = self._cut_torn_line()
        if size and size + more > self._max:
            self._rotate()

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._fd), os.stat(self._path))
        except FileNotFoundError:
            return False

    def _rotate(self) -> None:
        os.close(self._fd)
        self._fd = -1
        for n in range(self._backups, 1, -1):
            if os.path.exists(older := f"{self._path}.{n - 1}"):
                os.replace(older, f"{self._path}.{n}")
        if self._backups:
            os.replace(self._path, f"{self._path}.1")
        else:
            os.unlink(self._path)
        self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def _cut_torn_line(self) -> int:
        """Cut off a partial last line. Return the size of the file."""
        size = end = os.fstat(self._fd).st_size
        if not size or os.pread(self._fd, 1, size - 1) == b"\n":
            return size
        while end:
            start = max(0, end - _BLOCK)
            found = os.pread(self._fd, end - start, start).rfind(b"\n")
            end = start + found + 1 if found >= 0 else start
            if found >= 0:
                break
        os.ftruncate(self._fd, end)
        return end

    def _append(self, data: bytes) -> None:
        start = os.fstat(self._fd).st_size
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
            os.fsync(self._fd)
        except OSError:
            os.ftruncate(self._fd, start)
            raise
