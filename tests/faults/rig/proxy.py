"""What networks do to Redis, on order: a TCP proxy in front of a server, which knows of the protocol only where a request ends."""

from __future__ import annotations

import contextlib
import hashlib
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources

import redis
from redis.connection import parse_url

from fusion.store.scripting.scripts import Script
from fusion.store.write.broker import Broker

#: Cut before the server sees the request; after it has answered it, the answer lost; with a reset; or fall silent, sockets kept.
CUT, LOSE, RESET, HOLE = "cut", "lose", "reset", "hole"


def script_names(conn: redis.Redis) -> dict[bytes, str]:
    """Of each script by its hash, as workers with default settings send it."""
    host = Broker(conn)
    constants, version = host._constants, host._server_version()
    names = [entry.name for entry in (resources.files("fusion.store") / "lua").iterdir() if entry.name.endswith(".lua")]
    known = {name[:-4]: Script(name[:-4], conn, constants, version) for name in names}
    return {script.sha.encode(): name for name, script in known.items()}


@dataclass
class Rule:
    """Strikes at the `nth` request that matches and at every `every`-th after that, `times` times. `what` may be an error reply: it is
    given instead of forwarding the request."""

    what: str
    matches: Callable[[str], bool]
    nth: int = 1
    every: int = 1
    times: float = 1
    seen: int = 0
    struck: int = 0

    def strikes(self, name: str) -> bool:
        if not self.matches(name):
            return False
        self.seen += 1
        if self.struck >= self.times or self.seen < self.nth or (self.seen - self.nth) % self.every:
            return False
        self.struck += 1
        return True


class FaultProxy:
    """In front of the server that `url` names by its unix socket; `url` of the proxy is TCP with the same login.

    `delay` (from, to) seconds are added to each reply, `rate` bounds the bytes per second of a connection in each direction.
    """

    def __init__(self, url: str, conn: redis.Redis) -> None:
        given = parse_url(url)  # type: ignore[no-untyped-call]
        self._upstream, self._names = str(given["path"]), script_names(conn)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        login = f"{given['username']}:{given['password']}@" if given.get("password") else ""
        self.url = f"redis://{login}127.0.0.1:{self.port}/{given.get('db') or 0}"
        self.delay, self.rate, self.dark = (0.0, 0.0), 0.0, False
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self.links: list[Link] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def on(self, command: str, what: str, *, nth: int = 1, every: int = 1, times: float = 1) -> Rule:
        """`command`: a command, the name of a script, or `*` for any."""
        rule = Rule(what, lambda name: command in ("*", name), nth, every, times)
        self._rules.append(rule)
        return rule

    def lift(self) -> None:
        """No rule any more, no delay; connections that fell silent stay so, new ones work."""
        self._rules, self.delay, self.rate, self.dark = [], (0.0, 0.0), 0.0, False

    def silence(self, command: str = "*") -> int:
        """From here on nothing passes on the connections that have sent this command; how many. With `*` on new ones neither."""
        self.dark = command == "*"
        found = [link for link in self.links if link.open and (self.dark or command in link.sent)]
        for link in found:
            link.silent = True
        return len(found)

    def reset(self) -> None:
        """Every connection ends with a TCP reset."""
        self._tell_all(b"r")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._tell_all(b"e")
        for link in self.links:
            link.thread.join(5)

    def _tell_all(self, what: bytes) -> None:
        for link in self.links:
            with contextlib.suppress(OSError):  # it has ended
                link.wake.send(what)

    def fate(self, name: str) -> str:
        with self._lock:
            return next((rule.what for rule in self._rules if rule.strikes(name)), "")

    def name_of(self, words: list[bytes]) -> str:
        command = words[0].decode().upper()
        if command not in ("EVALSHA", "EVAL"):
            return command
        sha = words[1] if command == "EVALSHA" else hashlib.sha1(words[1]).hexdigest().encode()  # noqa: S324
        return self._names.get(sha, "?")

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._upstream)
            except OSError:
                client.close()
                server.close()
                continue
            self.links.append(Link(self, client, server))


class Link:
    """One connection through the proxy."""

    def __init__(self, proxy: FaultProxy, client: socket.socket, server: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._proxy, self._client, self._server = proxy, client, server
        self._pending, self._losing = bytearray(), False
        self.sent: set[str] = set()
        self.silent, self.open = proxy.dark, True
        self._waked, self.wake = socket.socketpair()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            self._pump()
        self.open = False
        for each in (self._client, self._server, self._waked, self.wake):
            each.close()

    def _pump(self) -> None:
        heard = [self._waked, self._client, self._server]
        while True:
            for source in _readable(heard):
                data = source.recv(65536)
                if source is self._waked:
                    return self._reset() if data == b"r" else None
                if self.silent:
                    if not data:
                        heard.remove(source)  # the other side must not learn of it
                elif not data or not (self._requests(data) if source is self._client else self._reply(data)):
                    return None

    def _requests(self, data: bytes) -> bool:
        self._pending += data
        while found := _request(self._pending):
            words, size = found
            request = bytes(self._pending[:size])
            del self._pending[:size]
            name = self._proxy.name_of(words)
            self.sent.add(name)
            fate = self._proxy.fate(name)
            if fate == RESET:
                self._reset()
            if fate in (CUT, RESET):
                return False
            if fate == HOLE:
                self.silent = True
                return True
            self._losing = fate == LOSE
            if fate and not self._losing:
                self._client.sendall(f"-{fate}\r\n".encode())
            else:
                self._send(self._server, request)
        return True

    def _reply(self, data: bytes) -> bool:
        if self._losing:
            return False
        time.sleep(random.uniform(*self._proxy.delay))
        self._send(self._client, data)
        return True

    def _send(self, target: socket.socket, data: bytes) -> None:
        at = 0
        while at < len(data):
            rate = self._proxy.rate
            piece = data[at : at + max(1, int(rate / 10))] if rate else data[at:]
            target.sendall(piece)
            at += len(piece)
            if rate:
                time.sleep(len(piece) / rate)

    def _reset(self) -> None:
        self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _readable(sockets: list[socket.socket]) -> list[socket.socket]:
    """Waits. Not select(): a long test makes descriptors that are too high for it."""
    poll, known = select.poll(), {each.fileno(): each for each in sockets}
    for fd in known:
        poll.register(fd, select.POLLIN)
    return [known[fd] for fd, _ in poll.poll()]


def _request(data: bytearray) -> tuple[list[bytes], int] | None:
    """The first words of the request that `data` begins with, and its length; None if it is not all there."""
    end = data.find(b"\r\n")
    if end < 0:
        return None
    words, count, at = [], int(data[1:end]), end + 2
    for _ in range(count):
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        start, at = end + 2, end + 4 + int(data[at + 1 : end])
        if at > len(data):
            return None
        if len(words) < 2:
            words.append(bytes(data[start : at - 2]))
    return words, at
