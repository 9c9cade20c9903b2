"""A connection with one deadline and one byte limit for the whole exchange."""

from __future__ import annotations

import functools
import io
import os
import socket
import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

#: Connects to one address and port within seconds; raises OSError. Never looks up a name.
Dial = Callable[[str, int, float], socket.socket]


class Deadline:
    """A point in time some seconds away. A socket's own timeout starts again with each byte; this does not."""

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    def left(self, most: float = float("inf")) -> float:
        """Return the seconds that are left, at most `most`. TimeoutError if none are."""
        left = self._at - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time is up")
        return min(left, most)


class Wire(io.RawIOBase):
    """A socket for http.client. Sending and reading end at the deadline, and it returns at most `limit` bytes in all."""

    def __init__(self, channel: socket.socket, deadline: Deadline, limit: int) -> None:
        self._channel, self._deadline, self._left = channel, deadline, limit
        self._reader = _Reader(self, 4096)
        #: True once a read reached the limit; and `ended`: once a read reached the end of the data.
        self.full = False
        self.ended = False

    def send_all(self, data: bytes) -> None:
        """Send everything. TimeoutError at the deadline."""
        rest = memoryview(data)
        while rest:
            self._channel.settimeout(self._deadline.left())
            rest = rest[self._channel.send(rest) :]

    def readable(self) -> bool:
        """Return True, as `io.BufferedReader` requires."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read available data into the buffer; return 0 at the limit and at the end. TimeoutError at the deadline."""
        room = memoryview(buffer)[: self._left]
        if not room:
            self.full = True
            return 0
        self._channel.settimeout(self._deadline.left())
        count = self._channel.recv_into(room)
        self._left -= count
        self.ended = count == 0
        return count

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return the one reader for all answers: data received together with a 103 belongs to the next answer."""
        return self._reader


class _Reader(io.BufferedReader):
    def close(self) -> None:
        """Do nothing: http.client closes it after each answer, even a 103. The sender closes the connection."""

    def flush(self) -> None:
        """Do nothing, so that no error comes if an answer is deleted after its connection."""


def dial(address: str, port: int, timeout: float) -> socket.socket:
    """Return a TCP connection to an address; OSError if it fails within `timeout` seconds."""
    channel = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        channel.settimeout(timeout)
        channel.connect((address, port))
    except BaseException:
        channel.close()
        raise
    return channel


def secure(channel: socket.socket, host: str, deadline: Deadline) -> ssl.SSLSocket:
    """Return a TLS connection over the channel, with a certificate that the system trusts for `host`. OSError if that fails by the
    deadline.

    From then on this function, or the returned connection, owns the channel.
    """
    try:
        wrapped = _context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")).wrap_socket(
            channel, server_hostname=host, do_handshake_on_connect=False
        )
    except BaseException:
        channel.close()
        raise
    try:
        wrapped.settimeout(deadline.left())
        wrapped.do_handshake()
    except BaseException:
        wrapped.close()
        raise
    return wrapped


# Reading the system's certificates takes 20 ms. The two variables name another certificate store for OpenSSL, such as a company's own.
@functools.lru_cache(maxsize=4)
def _context(cert_file: str | None, cert_dir: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context
