"""The worker's end of a fork server that is not there: the test reads its commands and plays its horses, without a process."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from fusion.execution.frames import FrameReader, pack
from fusion.executors.concurrent_horse import ConcurrentForkServerClient
from fusion.executors.warm_horse import WarmForkServerClient
from fusion.forkserver.client import ForkServerClient
from fusion.forkserver.messages import ForkServerConfig
from fusion.runtime.loop import Loop


class _Played:
    """Mixed into a client: `start` makes a socket whose other end is here."""

    config: ForkServerConfig
    _control: socket.socket | None

    def start(self) -> None:
        self._control, self.theirs = socket.socketpair()
        self._control.setblocking(False)
        self.theirs.setblocking(False)
        self.ends: dict[int, socket.socket] = {}
        self.commands: list[str] = []
        self.destroyed = False
        self._readers: dict[int, FrameReader] = {}

    @property
    def pid(self) -> int | None:
        return 4711

    def destroy(self) -> None:
        self.destroyed = True
        if self._control is not None:
            self._control.close()
            self._control = None
        self.theirs.close()

    def read(self) -> list[str]:
        """The commands since the last call; horses that were asked for are there from now on."""
        new: list[str] = []
        try:
            while data := socket.recv_fds(self.theirs, 65536, 64):
                ends = [socket.socket(fileno=fd) for fd in data[1]]
                for line in data[0].decode().splitlines():
                    new.append(line)
                    if line.startswith("FORK "):
                        self.ends[int(line.split()[1])] = ends.pop(0)
        except BlockingIOError:
            pass
        self.commands += new
        return new

    def say(self, line: str) -> None:
        """Send the worker a line of the fork server's."""
        self.theirs.send(line.encode() + b"\n")

    def exit(self, serial: int, status: int = 0, why: str = "-") -> None:
        """A horse is dead."""
        self.read()
        self.ends.pop(serial).close()
        self.say(f"EXIT {serial} {status} 1024 {why}")

    def hang_up(self) -> None:
        """The fork server dies, and with it every horse."""
        self.read()
        for end in self.ends.values():
            end.close()
        self.theirs.shutdown(socket.SHUT_RDWR)

    def jobs(self, serial: int) -> list[dict[bytes, bytes]]:
        """The frames that this horse reads now."""
        self.read()
        end = self.ends[serial]
        end.setblocking(False)
        reader, found = self._readers.setdefault(serial, FrameReader(1 << 20)), []
        try:
            while data := end.recv(65536):
                reader.feed(data)
                while (frame := reader.next()) is not None:
                    found.append(frame)
        except BlockingIOError:
            pass
        return found

    def answer(self, serial: int, fields: Mapping[bytes, bytes]) -> None:
        """A horse sends a frame."""
        self.read()
        self.ends[serial].send(pack(fields))


class FakeForkServer(_Played, ForkServerClient):
    """For `ForkExecutor`."""


class FakeWarmForkServer(_Played, WarmForkServerClient):
    """For `WarmExecutor`."""


class FakeConcurrentForkServer(_Played, ConcurrentForkServerClient):
    """For `ConcurrentExecutor`."""


def settle(loop: Loop) -> None:
    """Let the loop handle all that is there."""
    for _ in range(4):
        loop.run_once(0)
