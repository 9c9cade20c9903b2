"""The worker's end of the socket to one horse."""

from __future__ import annotations

import _socket
import signal
from collections.abc import Mapping
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Protocol

from fusion.execution.callbacks import HOOKS_TIMEOUT, callback_limits
from fusion.execution.frames import FrameError, FrameReader, pack
from fusion.forkserver.messages import ForkServerConfig

_NOTHING = pack({})


class HorseServer(Protocol):
    """The part of a horse's fork server that the socket's end needs."""

    config: ForkServerConfig
    hooked: bool

    def set_deadline(self, horse: Horse, deadline: float) -> None:
        """Move the monotonic time at which the fork server kills the horse's group."""

    def kill(self, horse: Horse, signum: int) -> None:
        """Signal the horse's whole process group."""

    def ask_pid(self, horse: Horse) -> None:
        """Ask for the horse's process id; the answer sets `horse.pid`."""


class Horse:
    """The worker's end of one horse's socket."""

    def __init__(self, server: HorseServer, serial: int, end: _socket.socket, limit: int) -> None:
        self.serial = serial
        #: True if no more frames will come. The process may still run: only HorseExited means its end.
        self.at_eof = False
        #: Why the stream was given up, and the horse killed; None if it was not.
        self.broken: str | None = None
        #: Monotonic seconds at which the fork server kills its group.
        self.deadline = inf
        #: For display only: it may belong to another process once this one has ended.
        self.pid: int | None = None
        self._server = server
        self._socket = end
        #: The socket's descriptor, for the loop.
        self.fileno = end.fileno
        self._reader = FrameReader(limit)
        #: True once the task has ended and its callback runs.
        self.task_over = False
        #: Data that wait for the socket, see `flush`.
        self.unsent = memoryview(b"")
        self._callbacks: list[float] = []
        self._for_hooks, self._is_shared = 0.0, False
        self._finishing = False

    def send(self, fields: Mapping[bytes, bytes]) -> None:
        """Send one frame, or begin to: see `unsent`."""
        self.unsent = memoryview(bytes(self.unsent) + pack(fields))
        self.flush()

    def wake(self) -> None:
        """Wake a horse without a job by an empty frame, so that it runs already when the job comes."""
        try:
            self._socket.send(_NOTHING)
        except OSError:  # it is gone: that is noticed elsewhere
            pass

    def flush(self) -> None:
        """Send waiting data, as much as the socket takes. HorseExited, not this, reports a dead horse."""
        try:
            while self.unsent:
                self.unsent = self.unsent[self._socket.send(self.unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self.unsent = memoryview(b"")
        if self._finishing:
            self._shut_if_done()

    def finish(self) -> None:
        """Close the sending side behind the sent data. A spare ends at that; a running job that checks sees a request to end."""
        self._finishing = True
        self._shut_if_done()

    def _shut_if_done(self) -> None:
        if not self.unsent:
            with suppress(OSError):
                self._socket.shutdown(_socket.SHUT_WR)

    def receive(self, limit: int = 64 * 1024) -> list[dict[bytes, bytes]]:
        """Return the frames that have arrived; read at most `limit` bytes. Empty list: no whole frame yet, or see `at_eof`."""
        if self.at_eof:
            return []
        frames: list[dict[bytes, bytes]] = []
        for frame in self._read(limit):
            if frame.get(b"kind") == b"callback":
                self._grant(frame)
            else:
                frames.append(frame)
        if self.broken is not None:
            self._server.kill(self, signal.SIGKILL)
        return frames

    def _read(self, limit: int) -> list[dict[bytes, bytes]]:
        """Read once; return the completed frames."""
        frames: list[dict[bytes, bytes]] = []
        try:
            data = self._socket.recv(limit)
        except BlockingIOError:
            return frames
        except OSError:
            data = b""
        self._take(data, frames)
        return frames

    def _take(self, data: bytes, frames: list[dict[bytes, bytes]]) -> None:
        """Add the frames that these bytes complete. Empty `data` is the end of the stream."""
        self.at_eof = not data
        if not data:
            return
        try:
            if (only := self._reader.only(data)) is not None:
                frames.append(only)
                return
            self._reader.feed(data)
            while (frame := self._reader.next()) is not None:
                frames.append(frame)
        except FrameError as error:
            self.broken, self.at_eof = str(error), True

    def drain(self) -> list[dict[bytes, bytes]]:
        """Return all remaining frames of a horse that has exited."""
        frames: list[dict[bytes, bytes]] = []
        while not self.at_eof:
            before = self._reader.pending
            found = self.receive()
            if not found and self._reader.pending == before:
                break
            frames += found
        return frames

    def close(self) -> None:
        """Close the socket. The process sees the end of the stream and exits once its job is done."""
        self._socket.close()

    def known_pid(self) -> int | None:
        """Return `pid`. The first call only requests it."""
        if self.pid is None:
            self._server.ask_pid(self)
        return self.pid

    def expect_callbacks(self, fields: Mapping[bytes, bytes]) -> None:
        """Note the callbacks of a job that begins. One of them may extend the deadline, once, by its own timeout."""
        self._callbacks = callback_limits(fields)
        self.expect_hooks(fields)

    def expect_hooks(self, fields: Mapping[bytes, bytes]) -> None:
        """Note how long hooks may take after the task."""
        self._for_hooks, self._is_shared = HOOKS_TIMEOUT if self._server.hooked else 0.0, b"gathered" in fields

    def _grant(self, frame: dict[bytes, bytes]) -> None:
        if (deadline := self.granted(frame, monotonic())) is not None:
            self._server.set_deadline(self, deadline)

    def granted(self, frame: Mapping[bytes, bytes], now: float) -> float | None:
        """Return the new deadline when the task is over and its hooks or its callback begin; None to keep the present one."""
        # It is extended once, and only as the job's fields and the existing hooks allow: the frame comes from a process with foreign code.
        grace = self._server.config.grace
        if b"hooks" in frame:
            more, self._for_hooks = self._for_hooks, 0.0
            base = self.deadline if self.task_over or self._is_shared else now + grace
        else:
            more, self._callbacks = max(self._callbacks, default=0.0), []
            base = now + grace
        if not more:
            return None
        self.task_over = True
        return base + more
