"""Servers on real sockets that misbehave as a test wants, and what stands in for DNS and for the way to a public address."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Sequence

from fusion.delivery.targets import Policy
from fusion.delivery.wire import dial

PUBLIC, PUBLIC_TOO, PUBLIC_V6 = "93.184.216.34", "8.8.8.8", "2606:4700::1111"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Receiver:
    """Accepts connections and hands each to `handle(connection, receiver)` in a thread of its own, until it is stopped."""

    def __init__(
        self, handle: Callable[[socket.socket, Receiver], None], tls: ssl.SSLContext | None = None, ip: str = "127.0.0.1"
    ) -> None:
        self.handle, self.tls = handle, tls
        self.stopped = threading.Event()
        self.connections = 0
        self.requests: list[bytes] = []
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET
        self.listener = socket.create_server((ip, 0), family=family)
        self.port: int = self.listener.getsockname()[1]
        self.threads = [threading.Thread(target=self._accept, daemon=True)]
        self.threads[0].start()

    def stop(self) -> None:
        self.stopped.set()
        # A listener that is closed while accept() waits keeps waiting; one that is shut down does not.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in self.threads)

    def policy(self, **changes: object) -> Policy:
        """Under which this server may be called as http(s)://hook.test:port."""
        return Policy(**{"allow_http": True, "ports": (self.port,), "allowed_hosts": ("hook.test",), **changes})  # type: ignore[arg-type]

    def url(self, path: str = "/hook", host: str = "hook.test") -> str:
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{path}"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            self.threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
            self.threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(20)
            with self.tls.wrap_socket(connection, server_side=True) if self.tls else connection as channel:
                self.handle(channel, self)
        except OSError:
            pass
        finally:
            connection.close()

    def read(self, channel: socket.socket) -> bytes:
        """One whole request, which is also kept."""
        data = b""
        while b"\r\n\r\n" not in data or len(data.partition(b"\r\n\r\n")[2]) < _length(data):
            piece = channel.recv(65536)
            if not piece:
                break
            data += piece
        self.requests.append(data)
        return data


def answering(*pieces: bytes) -> Callable[[socket.socket, Receiver], None]:
    """Reads the request, sends the pieces, closes."""

    def handle(channel: socket.socket, receiver: Receiver) -> None:
        receiver.read(channel)
        for piece in pieces:
            channel.sendall(piece)
        channel.shutdown(socket.SHUT_WR)
        while channel.recv(4096):  # so that the close is no reset
            pass

    return handle


def dripping(first: bytes, drop: bytes) -> Callable[[socket.socket, Receiver], None]:
    """Sends `drop` again and again, without an end."""

    def handle(channel: socket.socket, receiver: Receiver) -> None:
        receiver.read(channel)
        channel.sendall(first)
        while not receiver.stopped.wait(0.02):
            channel.sendall(drop)

    return handle


def pouring(first: bytes, block: bytes) -> Callable[[socket.socket, Receiver], None]:
    """As `dripping`, as fast as it goes."""

    def handle(channel: socket.socket, receiver: Receiver) -> None:
        receiver.read(channel)
        channel.sendall(first)
        while not receiver.stopped.is_set():
            channel.sendall(block)

    return handle


def silent(channel: socket.socket, receiver: Receiver) -> None:
    """Accepts, and neither reads nor writes."""
    receiver.stopped.wait(30)


def resetting(channel: socket.socket, receiver: Receiver) -> None:
    receiver.read(channel)
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")


class Names:
    """A resolver: each look-up gives the next of the answers, the last one for ever."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers, self.asked = list(answers), list[str]()

    def __call__(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class Routes:
    """Leads public addresses to servers of the test, and keeps which were called; there is no way to any other."""

    def __init__(self, **ports: int) -> None:
        self.ports, self.called = {PUBLIC: ports.get("public", 0), PUBLIC_V6: ports.get("public_v6", 0)}, list[str]()

    def __call__(self, address: str, port: int, timeout: float) -> socket.socket:
        self.called.append(address)
        if not self.ports.get(address):
            raise ConnectionRefusedError(111, "Connection refused")
        return dial("127.0.0.1", self.ports[address], timeout)


def _length(data: bytes) -> int:
    lines = data.partition(b"\r\n\r\n")[0].lower().split(b"\r\n")
    return next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), 0)
