"""The socket of a horse that runs many jobs at once: each frame names its run. One thread reads it, all threads write to it.

A thread that releases the GIL, to wait for a lock or to write, gets it back only after all others that wait for it. So one thread writes
the frames of all threads that send at the same time, and code that runs for each job makes few system calls.
"""

from __future__ import annotations

import sys
from _socket import MSG_DONTWAIT, SOL_SOCKET, socket
from _thread import allocate_lock, get_ident
from collections import deque

from fusion.execution.frames import pack
from fusion.forkserver.horse import Channel
from fusion.kernel.timeouts import held

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from typing import Protocol

    class Runner(Protocol):
        """Runs the jobs of such a horse. The reading thread calls it."""

        def start(self, fields: dict[bytes, bytes], line: RunLine) -> None:
            """Begin to run a job. `line`: its connection to the worker."""

        def stop(self, execution_id: bytes) -> None:
            """Ask the task of this run to stop, if it is not over."""


#: The socket module has no name for it.
_SO_COOKIE = 57 if sys.platform == "linux" else 0
#: Bytes of one read.
_READ = 1 << 16
#: Most frames that wait for the writing thread; with more, the sending thread waits, too.
_MOST_WAITING = 500


class SharedChannel(Channel):
    """The socket itself."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._socket = socket(fileno=fd)
        self._socket.setblocking(True)  # a task module may have set a default timeout
        self._cookie = self._look_up_cookie()
        self._inbox = memoryview(bytearray(_READ))
        self._outgoing: deque[bytes] = deque()
        #: The thread that holds it writes the outgoing frames.
        self._duty = allocate_lock()
        self._lines: dict[bytes, RunLine] = {}
        self._draining = False
        #: True once the worker sends nothing more.
        self.at_end = False
        #: The thread that reads.
        self.reader = 0

    def attach(self, runner: Runner) -> None:
        """Pass the worker's frames to `runner`. The calling thread becomes the reading thread."""
        self._runner, self.reader = runner, get_ident()

    def serve(self, runner: Runner) -> None:
        """Pass on the worker's frames until it sends nothing more."""
        self.attach(runner)
        while self.hear():
            pass

    def hear(self, *, wait: bool = True) -> bool:
        """Pass on the frames that have arrived. `wait`: wait until there is one. False if the worker sends nothing more."""
        try:
            size = self._socket.recv_into(self._inbox, 0, 0 if wait else MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except ConnectionResetError:  # the worker died before it read all of this process's frames
            size = 0
        if not size:
            self.at_end = True
            for line in list(self._lines.values()):
                line.hear(None)
            return False
        self._reader.feed(self._inbox[:size])
        while (frame := self._reader.next()) is not None:
            self._take(frame)
        return True

    def _take(self, frame: dict[bytes, bytes]) -> None:
        kind, execution_id = frame.get(b"kind"), frame.get(b"execution_id", b"")
        if kind is None and b"id" in frame:
            self._lines[execution_id] = line = RunLine(self, execution_id)
            self._runner.start(frame, line)
        elif kind == b"stop":
            self._runner.stop(execution_id)
        elif kind == b"ping":
            self.send({b"kind": b"pong"})
        elif kind == b"drain":
            self._draining = True
        elif execution_id in self._lines:
            self._lines[execution_id].hear(frame)

    def asked_to_end(self) -> bool:
        """Return True if the worker wants to end. Running jobs may go on, and may be stopped."""
        return self._draining or super().asked_to_end()

    def forget(self, execution_id: bytes) -> None:
        """Forget a run that is over."""
        self._lines.pop(execution_id, None)

    # -- sending

    def send(self, fields: dict[bytes, bytes]) -> None:
        """Write a frame, or leave that to a thread that is writing already. Frames keep their order.

        OSError if the socket is gone or its number belongs to another file; then frames of other threads are lost, too.
        """
        outgoing = self._outgoing
        with held():
            self._check_owner()
            outgoing.append(pack(fields))
            # Check again after writing: a frame that came meanwhile was left to this thread.
            while outgoing and self._duty.acquire(len(outgoing) > _MOST_WAITING):
                try:
                    self._write()
                finally:
                    self._duty.release()

    def flush(self) -> None:
        """Wait until all sent frames are written. OSError as for `send`."""
        with held(), self._duty:
            if self._outgoing:
                self._write()

    def _write(self) -> None:
        with self._lock:  # `offer` may be writing
            self._check()
            frames, self._rest = [self._rest], b""
            while self._outgoing:
                frames.append(self._outgoing.popleft())
            self._socket.sendall(b"".join(frames))

    def _look_up_cookie(self) -> bytes:
        """Return the kernel's unique number of this socket; empty where there is none."""
        try:
            return self._socket.getsockopt(SOL_SOCKET, _SO_COOKIE, 8) if _SO_COOKIE else b""
        except OSError:
            return b""

    def _check(self) -> None:
        if not self._cookie:
            super()._check()
        elif self._look_up_cookie() != self._cookie:
            raise OSError("the task closed Fusion's socket")

    def _try(self, frame: bytes) -> bool:
        # A flag of this call only: O_NONBLOCK would affect the reader, too.
        try:
            if self._rest:
                self._rest = self._rest[self._socket.send(self._rest, MSG_DONTWAIT) :]
            if self._rest:
                return False
            self._rest = frame[self._socket.send(frame, MSG_DONTWAIT) :]
            return True
        except BlockingIOError:
            return False


class RunLine:
    """The connection of one run to the worker: sends its frames, and keeps the frames that came for it."""

    def __init__(self, channel: SharedChannel, execution_id: bytes) -> None:
        self.execution_id = execution_id
        self._channel = channel
        self._heard: list[dict[bytes, bytes]] = []
        self._ended = False
        self._news = allocate_lock()
        self._news.acquire()

    def send(self, fields: dict[bytes, bytes]) -> None:
        """Raises OSError if the socket is gone or another file has taken its number."""
        self._channel.send({b"execution_id": self.execution_id, **fields})

    def offer(self, fields: dict[bytes, bytes]) -> bool:
        """Send a frame if that is possible without waiting. False if it was not sent."""
        return self._channel.offer({b"execution_id": self.execution_id, **fields})

    def asked_to_end(self) -> bool:
        """Return True if the worker wants this process to end when it can."""
        return self._channel.asked_to_end()

    def hear(self, frame: dict[bytes, bytes] | None) -> None:
        """Keep a frame that the worker sent for the run; None: no more will come."""
        if frame is None:
            self._ended = True
        else:
            self._heard.append(frame)
        if self._news.locked():
            self._news.release()

    def wait_for(self, key: bytes, value: bytes) -> bool:
        """Wait for a frame of the worker in which `key` is `value`. False if none can come any more.

        In the reading thread other frames that come meanwhile are passed on.
        """
        while True:
            while self._heard:
                if self._heard.pop(0).get(key) == value:
                    return True
            if self._ended:
                return False
            if get_ident() == self._channel.reader:
                self._channel.hear()
            else:
                self._news.acquire()
