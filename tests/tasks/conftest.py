"""The real sandbox over real sockets; a raw server for answers that no decent provider gives."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from fusion.context import CurrentJob, set_current_job
from tasks.sandbox import Sandbox


@pytest.fixture
def sandbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    """A sandbox that the default providers point at. Not shared: what one test delayed would arrive in another."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    with Sandbox() as running:
        for name, value in running.env().items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def in_job() -> Iterator[None]:
    """As if this process ran job `job-1` with priority 2."""
    set_current_job(CurrentJob({b"id": b"job-1", b"priority": b"2"}))
    yield
    set_current_job(None)


@dataclass
class RawServer:
    """Answers every connection with `handle(connection, request so far)`."""

    url: str
    requests: list[bytes] = field(default_factory=list)


@pytest.fixture
def raw_server() -> Iterator[Callable[[Callable[[socket.socket], None]], RawServer]]:
    """A server for one test: `raw_server(handle)`, where `handle` gets the connection after one request was read."""
    started: list[tuple[socket.socket, threading.Thread]] = []

    def start(handle: Callable[[socket.socket], None]) -> RawServer:
        listener = socket.create_server(("127.0.0.1", 0))
        server = RawServer(f"http://127.0.0.1:{listener.getsockname()[1]}")

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    try:
                        server.requests.append(_read_request(connection))
                        handle(connection)
                    except OSError:
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        started.append((listener, thread))
        return server

    yield start
    for listener, thread in started:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)
        assert not thread.is_alive()


def _read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = connection.recv(65536)
        if not chunk:
            return data
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@pytest.fixture
def closed_port() -> int:
    """A port of this machine where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
