"""What clients send to a Redis, seen by the server itself."""

from __future__ import annotations

import re
import secrets
import socket
from collections import Counter

import redis

from tests.kit import guarded

_LINE = re.compile(rb'\+\d+\.\d+ \[(\d+) (\S+)\] "(\w+)"')


class Monitor:
    """MONITOR on a unix socket. Commands that scripts run inside the server are left out: they are no round trips."""

    def __init__(self, url: str, conn: redis.Redis) -> None:
        self._conn = conn
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.connect(url.removeprefix("unix://").partition("?")[0])
        self._sock.settimeout(20)
        self._sock.sendall(guarded.login() + b"MONITOR\r\n")
        self._buffer = b""
        self._read_to(b"+OK\r\n" * (2 if guarded.GUARDED else 1))

    def commands(self) -> list[str]:
        """Names of the commands that came since the last call."""
        return [name for _, name in self._seen()]

    def by_database(self) -> Counter[int]:
        """How many came since the last call, by the database they were for."""
        return Counter(database for database, _ in self._seen())

    def _seen(self) -> list[tuple[int, str]]:
        marker = secrets.token_hex(8)
        self._conn.echo(marker)
        seen = self._read_to(f'"ECHO" "{marker}"\r\n'.encode())
        found = [_LINE.match(line) for line in seen.split(b"\r\n")[:-1]]
        return [(int(match[1]), match[3].decode().upper()) for match in found if match and match[2] != b"lua"]

    def _read_to(self, end: bytes) -> bytes:
        while end not in self._buffer:
            self._buffer += self._sock.recv(1 << 20)
        seen, _, self._buffer = self._buffer.partition(end)
        return seen

    def close(self) -> None:
        self._sock.close()
