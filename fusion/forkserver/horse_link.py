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
    """The fork server whose child a horse is, as far as its socket's end needs it."""

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
        #: No more frames will come. Says nothing about the process: only HorseExited does.
        self.at_eof = False
        #: Why the stream was given up, if it was; the horse has been killed for it.
        self.broken: str | None = None
        #: Monotonic seconds at which the fork server kills its group.
        self.deadline = inf
        #: For looking only: it may name another process once this one has ended.
        self.pid: int | None = None
        self._server = server
        self._socket = end
        self._reader = FrameReader(limit)
        #: The task has ended, and its callback runs.
        self.task_over = False
        self._out = memoryview(b"")
        self._callbacks: list[float] = []
        self._for_hooks, self._is_shared = 0.0, False
        self._finishing = False

    def fileno(self) -> int:
        """The socket's descriptor, for the loop."""
        return self._socket.fileno()

    @property
    def wants_write(self) -> bool:
        return bool(self._out)

    def send(self, fields: Mapping[bytes, bytes]) -> None:
        """Send one frame, or begin to: see `wants_write`."""
        self._out = memoryview(bytes(self._out) + pack(fields))
        self.flush()

    def wake(self) -> None:
        """Have a horse without a job run when one comes, in a moment: an empty frame says nothing."""
        try:
            self._socket.send(_NOTHING)
        except OSError:  # it is gone: that shows elsewhere
            pass

    def flush(self) -> None:
        """Send what the socket takes. A horse that is gone shows in HorseExited, not here."""
        try:
            while self._out:
                self._out = self._out[self._socket.send(self._out) :]
        except BlockingIOError:
            pass
        except OSError:
            self._out = memoryview(b"")
        self._shut_if_done()

    def finish(self) -> None:
        """Let it find the end of the stream behind what it was sent: to a spare that is the end, to a job that looks a request to end."""
        self._finishing = True
        self._shut_if_done()

    def _shut_if_done(self) -> None:
        if self._finishing and not self._out:
            with suppress(OSError):
                self._socket.shutdown(_socket.SHUT_WR)

    def receive(self, limit: int = 64 * 1024) -> list[dict[bytes, bytes]]:
        """The frames that have arrived, reading at most `limit` bytes. Empty list: nothing whole yet, or see `at_eof`."""
        if self.at_eof:
            return []
        heard = self._read(limit)
        frames = [frame for frame in heard if frame.get(b"kind") != b"callback"]
        if len(frames) < len(heard):
            self._grant([frame for frame in heard if frame.get(b"kind") == b"callback"])
        if self.broken is not None:
            self._server.kill(self, signal.SIGKILL)
        return frames

    def _read(self, limit: int) -> list[dict[bytes, bytes]]:
        """One read: the frames that it completes."""
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
        """Add the frames that these bytes complete; no bytes are the end of the stream."""
        self.at_eof = not data
        try:
            self._reader.feed(data)
            while (frame := self._reader.next()) is not None:
                frames.append(frame)
        except FrameError as error:
            self.broken, self.at_eof = str(error), True

    def drain(self) -> list[dict[bytes, bytes]]:
        """Every frame up to the end, for a horse that has exited."""
        frames: list[dict[bytes, bytes]] = []
        while not self.at_eof:
            before = self._reader.pending
            found = self.receive()
            if not found and self._reader.pending == before:
                break
            frames += found
        return frames

    def close(self) -> None:
        """Close the socket. To the process that is the end of the stream: it exits once its job is done."""
        self._socket.close()

    def known_pid(self) -> int | None:
        """`pid`, which the first call only asks for."""
        if self.pid is None:
            self._server.ask_pid(self)
        return self.pid

    def expect_callbacks(self, fields: Mapping[bytes, bytes]) -> None:
        """Note the callbacks of a job that begins: one of them may move its deadline, once, by its own timeout."""
        self._callbacks = callback_limits(fields)
        self.expect_hooks(fields)

    def expect_hooks(self, fields: Mapping[bytes, bytes]) -> None:
        """Note what hooks may take when the task is over."""
        self._for_hooks, self._is_shared = HOOKS_TIMEOUT if self._server.hooked else 0.0, b"gathered" in fields

    def _grant(self, words: list[dict[bytes, bytes]]) -> None:
        for frame in words:
            if (deadline := self.granted(frame, monotonic())) is not None:
                self._server.set_deadline(self, deadline)

    def granted(self, frame: Mapping[bytes, bytes], now: float) -> float | None:
        """The deadline when the task is over, and its hooks or its callback begin; None for the one that there is."""
        # Only what the job's own fields allow, and the hooks that there are, and once: the word comes from a process that runs foreign code.
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
