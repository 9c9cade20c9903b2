"""redis-py's connections, with two things more: finding the server takes no longer than connecting may, and a large request has longer.
And its pools, with one more: a connection that somebody left amid an exchange is nobody else's.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Callable
from os import getpid
from ssl import SSLSocket
from typing import Any

from redis.connection import AbstractConnection, Connection, ConnectionPool, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.sentinel import SentinelConnectionPool, SentinelManagedConnection, SentinelManagedSSLConnection

from fusion.exceptions import ConfigurationError
from fusion.settings import readers
from fusion.store.client.dns import addresses
from fusion.store.client.room import Line, is_full

#: Bytes per second that a line should take at least, and the most seconds that a request has more for its size.
_SLOWEST = 256 * 1024
_LONGEST = 6.0

#: How options are read that a url, or RQ's SENTINEL dict, gives.
_READ: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("socket_timeout", "socket_connect_timeout"), readers.seconds(0.05, readers.ATTEMPT)),
    "max_connections": readers.whole(1),
    "port": readers.whole(1, 65535),
    "db": readers.whole(0, 2**31 - 1),
}


def check_options(given: dict[str, Any], where: str) -> dict[str, Any]:
    """Read the numbers in `given`: redis-py and the system would take nan, or wait for ever. ConfigurationError names the option."""
    for name, read in _READ.items():
        if (value := given.get(name)) is not None:
            try:
                given[name] = read(value)
            except readers.Invalid as error:
                raise ConfigurationError(f"{where}: {name} is {value!r}; {error}") from None
    return given


def time_for(size: int) -> float:
    """Seconds that a request of so many bytes has beyond the time that any has: none if it is small."""
    more = size / _SLOWEST
    return min(more, _LONGEST) if more > 0.25 else 0.0


class _Sized(AbstractConnection):
    """`socket_timeout` counts from when a request could be on the other side. One that needs longer on its way would be sent again and
    again, and its answer never heard: the results of several jobs over a slow line."""

    _prolonged = False

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        """Send a command, with more time for its answer if it is large."""
        more = time_for(sum(map(len, [command] if isinstance(command, str) else command)))
        sock: Any = self._sock
        if (more or self._prolonged) and sock is not None and self.socket_timeout is not None:
            self._prolonged = bool(more)
            sock.settimeout(self.socket_timeout + more)
        super().send_packed_command(command, check_health)  # type: ignore[no-untyped-call]


class UnixConnection(_Sized, UnixDomainSocketConnection):
    """A unix socket."""

    # redis-py reports metrics with these when a connection fails, and has them for TCP only.
    host = "localhost"
    port = 0


class NamedConnection(_Sized, Connection):
    """TCP to a host that may be a name; `socket_connect_timeout` bounds its look-up too."""

    def _connect(self) -> Any:
        name, refused = self.host, None
        for address in addresses(name, self.socket_connect_timeout):
            self.host = address  # for redis-py's own look-up, which has nothing to ask anybody then
            try:
                return super()._connect()  # type: ignore[no-untyped-call]
            except OSError as error:
                refused = error
            finally:
                self.host = name
        raise refused or OSError("the host has no address")


# In these the order of bases puts the look-up below TLS, which goes by the name.
class NamedSSLConnection(SSLConnection, NamedConnection):
    """TLS to a host that may be a name."""


class NamedMasterConnection(SentinelManagedConnection, NamedConnection):
    """TCP to the master that Sentinel names."""


class NamedMasterSSLConnection(SentinelManagedSSLConnection, NamedConnection):
    """TLS to the master that Sentinel names."""


class CleanPool(ConnectionPool):
    """Closes a connection that comes back while an exception is on its way, unless that is the server's answer. An exception that a signal
    handler raised between a command and its answer would leave the answer to whoever uses the connection next, and redis-py notices only
    if it has arrived by then.

    A connection that lies ready is handed out and taken back in a third of redis-py's time; all others go redis-py's way. Where there may be no
    more of them, the call waits for one that comes back.
    """

    def reset(self) -> None:
        """Begin with no connections and nobody who waits, as in a process that was just forked."""
        self._line = Line()
        super().reset()

    def get_connection(self, *args: Any, **options: Any) -> Any:
        """Hand out a connection, with a note of the exception that the caller handles just now."""
        connection: Any
        if self._line and self.pid == getpid():
            connection = self._line.wait(self._take, self)
        else:
            try:
                connection = self._take()
            except RedisConnectionError as error:
                if not is_full(error):
                    raise
                connection = self._line.wait(self._take, self)
        connection.amid = id(sys.exception())  # what the caller handles just now, if it does, has nothing to do with it
        return connection

    def _take(self) -> Any:
        return self._ready() or super().get_connection()  # type: ignore[no-untyped-call, unused-ignore]

    def release(self, connection: Any) -> None:
        """Take a connection back; one that was left amid an exchange is closed first."""
        self._release(connection)
        if self._line:
            self._line.wake()

    def _release(self, connection: Any) -> None:
        error = sys.exception()
        if error is not None and not isinstance(error, ResponseError) and id(error) != getattr(connection, "amid", 0):
            connection.disconnect()
        if not (getattr(connection, "quick", False) and self.pid == getpid() and self.owns_connection(connection)):
            super().release(connection)  # type: ignore[no-untyped-call, unused-ignore]
            return
        connection.quick = False
        with self._lock:
            if connection in self._in_use_connections:
                self._in_use_connections.remove(connection)
                self._available_connections.append(connection)

    def _ready(self) -> Any:
        """Take the connection that was used last, if this process made it, it is connected and nothing came over it since: neither its end
        nor an answer that nobody awaits. Else None, and it stays where it is."""
        if self.pid != getpid():
            return None
        with self._lock:
            if not self._available_connections:
                return None
            connection: Any = self._available_connections.pop()
            self._in_use_connections.add(connection)
        connection.quick = True
        ready = False
        try:
            ready = connection.pid == self.pid and _is_quiet(connection)
        finally:
            if not ready:
                self.release(connection)
        return connection if ready else None


def _is_quiet(connection: Any) -> bool:
    sock, reader = connection._sock, getattr(connection._parser, "_reader", None)
    if sock is None or reader is None or reader.has_data() or (isinstance(sock, SSLSocket) and sock.pending()):
        return False
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    return not poller.poll(0)


class CleanSentinelPool(SentinelConnectionPool, CleanPool):
    """A `CleanPool` that asks Sentinel for the master at each connect."""
