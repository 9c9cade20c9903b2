"""The socket of a horse that runs many jobs at once: every frame of a job says of which run it is. Read by one thread, written to by all.

A thread that lets go of the interpreter, as it does to wait for a lock or to write, gets it back behind all others that want it. So of the threads
that have something to send at the same time one writes it all, and what is called for each job calls the kernel as rarely as can be.
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
        """Runs the jobs of such a horse. Heard from the thread that reads."""

        def start(self, fields: dict[bytes, bytes], line: RunLine) -> None:
            """Begin to run a job, which speaks to the worker by `line`."""

        def stop(self, execution_id: bytes) -> None:
            """Ask the task of this run to stop, if it is not over."""


#: The socket module has no name for it.
_SO_COOKIE = 57 if sys.platform == "linux" else 0
#: Bytes of one read.
_READ = 1 << 16
#: Frames that wait for the thread that writes; with more of them the next one waits, too.
_MOST_WAITING = 500


class SharedChannel(Channel):
    """The socket itself."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._socket = socket(fileno=fd)
        self._socket.setblocking(True)  # whatever time limit for sockets a task module has set
        self._cookie = self._look_up_cookie()
        self._inbox = memoryview(bytearray(_READ))
        self._outgoing: deque[bytes] = deque()
        #: Whoever has it writes what is outgoing.
        self._duty = allocate_lock()
        self._lines: dict[bytes, RunLine] = {}
        self._draining = False
        #: The worker sends nothing more.
        self.at_end = False
        #: The thread that reads.
        self.reader = 0

    def attach(self, runner: Runner) -> None:
        """Hand out what the worker sends to this one; this thread is the one that reads."""
        self._runner, self.reader = runner, get_ident()

    def serve(self, runner: Runner) -> None:
        """Hand out what the worker sends, until it will send nothing more."""
        self.attach(runner)
        while self.hear():
            pass

    def hear(self, *, wait: bool = True) -> bool:
        """Hand out what the worker has sent; `wait` until there is something. False if it will send nothing more."""
        try:
            size = self._socket.recv_into(self._inbox, 0, 0 if wait else MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except ConnectionResetError:  # the worker died with something of this process unread
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
        """The worker wants to end; what runs here may go on, and be stopped."""
        return self._draining or super().asked_to_end()

    def forget(self, execution_id: bytes) -> None:
        """This run is over."""
        self._lines.pop(execution_id, None)

    # -- what is sent

    def send(self, fields: dict[bytes, bytes]) -> None:
        """Write a frame, or have the thread do so that is writing. Frames keep the order in which they were sent. Raises OSError if the socket is
        gone or another file has taken its number; what others have sent is lost with that, too."""
        outgoing = self._outgoing
        with held():
            self._check_owner()
            outgoing.append(pack(fields))
            # Looked at again once nobody writes: what came amid that found somebody who did.
            while outgoing and self._duty.acquire(len(outgoing) > _MOST_WAITING):
                try:
                    self._write()
                finally:
                    self._duty.release()

    def flush(self) -> None:
        """Wait until everything is written that was sent. Raises OSError as `send` does."""
        with held(), self._duty:
            if self._outgoing:
                self._write()

    def _write(self) -> None:
        with self._lock:  # an offer may be under way
            self._check()
            frames, self._rest = [self._rest], b""
            while self._outgoing:
                frames.append(self._outgoing.popleft())
            self._socket.sendall(b"".join(frames))

    def _look_up_cookie(self) -> bytes:
        """The kernel's number of this socket, which no other one ever has; empty where there is none."""
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
        # A flag of this call: O_NONBLOCK would be the reader's, too.
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
    """The line of one run to the worker: sends its frames, and keeps those that came for it."""

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
        """Send a frame if that needs no waiting: False if it was not sent."""
        return self._channel.offer({b"execution_id": self.execution_id, **fields})

    def asked_to_end(self) -> bool:
        """The worker wants this process to end when it can."""
        return self._channel.asked_to_end()

    def hear(self, frame: dict[bytes, bytes] | None) -> None:
        """The worker sent this for the run; None: nothing more will come."""
        if frame is None:
            self._ended = True
        else:
            self._heard.append(frame)
        if self._news.locked():
            self._news.release()

    def wait_for(self, key: bytes, value: bytes) -> bool:
        """Wait for a frame of the worker's in which `key` is `value`. False if none can come any more. In the thread that reads whatever else
        comes meanwhile is handed out."""
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
