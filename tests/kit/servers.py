"""Servers for the tests of this directory: real ones with options, one that answers what it is given, and TLS in front of a real one."""

from __future__ import annotations

import contextlib
import os
import random
import select
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import redis

from fusion.store.redis_server.instance import _death_pact
from tests.kit import guarded
from tests.kit.waiting import eventually


class SpawnedServer:
    """A redis-server or valkey-server on a unix socket, and on a TCP port if one is given in `args`."""

    def __init__(self, binary: str, *args: str, socket_option: bool = True) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="fus", dir="/tmp"))
        self.socket = str(self.home / "s")
        unix = ["--unixsocket", self.socket] if socket_option else []
        port = [] if "--port" in args or not socket_option else ["--port", "0"]
        self._command = [binary, *args, *port, *unix, "--dir", str(self.home)]
        self._start()
        if socket_option:
            self._await()

    def restart(self) -> None:
        """Killed, and started anew on the same files."""
        self.process.kill()
        self.process.wait()
        Path(self.socket).unlink()
        self._start()
        self._await()

    def _start(self) -> None:
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.home, preexec_fn=_death_pact()
        )

    def _await(self) -> None:
        try:
            eventually(self._listens, why=f"{self._command} listens")
        except AssertionError:
            self.close()
            raise

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url, protocol=2, socket_timeout=5)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.home, ignore_errors=True)

    def _listens(self) -> bool:
        assert self.process.poll() is None, f"{self._command} ended with {self.process.poll()}: is its port taken?"
        with socket.socket(socket.AF_UNIX) as sock:
            return sock.connect_ex(self.socket) == 0


class LateAnswers:
    """In front of a server on a unix socket: what that answers arrives this many seconds later, and in its order."""

    def __init__(self, path: str, seconds: float) -> None:
        self._path, self._seconds = path, seconds
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = guarded.as_user(f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0")
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        for near in _accepted(self._listener):
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            far = socket.socket(socket.AF_UNIX)
            far.connect(self._path)
            for source, target, late in ((near, far, 0.0), (far, near, self._seconds)):
                threading.Thread(target=self._pump, args=(source, target, late), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, late: float) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                time.sleep(late)
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()


def _ports() -> Iterator[int]:
    """A thousand for each process of a test run, one after the other, so that nobody gets one that another is about to listen on."""
    first = 10_000 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 10 * 1_000
    for offset in count(random.randrange(1_000)):
        yield first + offset % 1_000


_PORTS = _ports()


def free_port() -> int:
    """A port that nobody listens on. It and a cluster's + 10000 are below those that the kernel gives out by itself, and none is the + 10000 of
    another."""
    while True:
        port = next(_PORTS)
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
            return port


class ScriptedServer:
    """Answers the n-th command it gets, over all connections, with `answer(n)`; None = it hangs up."""

    def __init__(self, answer: Callable[[int], bytes | None]) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.connections = 0
        self.commands = 0
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def _accept(self) -> None:
        for sock in _accepted(self._listener):
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            while sock.recv(65536):
                reply = self._answer(self.commands)
                self.commands += 1
                if reply is None:
                    return
                sock.sendall(reply)

    def close(self) -> None:
        _close_listener(self._listener)


class TLSFront:
    """Takes TLS on a TCP port and passes the bytes to a unix socket, as stunnel does. The packaged servers have no TLS everywhere."""

    def __init__(self, context: ssl.SSLContext, target: str) -> None:
        self._context = context
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        for sock in _accepted(self._listener):
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        wrap = self._context.wrap_socket
        with raw, contextlib.suppress(OSError), wrap(raw, server_side=True) as near, socket.socket(socket.AF_UNIX) as far:
            far.connect(self._target)
            near.setblocking(False)
            far.setblocking(False)
            _pump(near, far)

    def close(self) -> None:
        _close_listener(self._listener)


def _accepted(listener: socket.socket) -> Iterator[socket.socket]:
    """The connections that arrive, until the listener is closed."""
    with contextlib.suppress(OSError):
        while True:
            yield listener.accept()[0]


def _close_listener(listener: socket.socket) -> None:
    # shutdown, as a thread that already sits in accept() would not notice close alone.
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def _pump(near: ssl.SSLSocket, far: socket.socket) -> None:
    while True:
        ready = [near] if near.pending() else select.select([near, far], [], [], 10)[0]
        if not ready:
            return
        for source in ready:
            target = far if source is near else near
            try:
                data = source.recv(65536)
            except (BlockingIOError, ssl.SSLWantReadError):
                continue
            if not data:
                return
            target.setblocking(True)
            target.sendall(data)
            target.setblocking(False)


@contextlib.contextmanager
def closing_all() -> Iterator[Callable[[SpawnedServer | ScriptedServer | TLSFront], None]]:
    held: list[SpawnedServer | ScriptedServer | TLSFront] = []
    try:
        yield held.append
    finally:
        for server in reversed(held):
            server.close()
