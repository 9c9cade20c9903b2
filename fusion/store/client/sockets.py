"""redis-py's connections with two additions: looking up the server takes no longer than connecting may, and a large request gets more time.
redis-py's pools with one: no call gets a connection that another left in the middle of an exchange.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Callable
from os import getpid
from ssl import SSLSocket
from typing import Any

from redis import exceptions as errors
from redis.connection import AbstractConnection, Connection, ConnectionPool, SSLConnection, UnixDomainSocketConnection
from redis.sentinel import SentinelConnectionPool, SentinelManagedConnection, SentinelManagedSSLConnection

from fusion.exceptions import ConfigurationError
from fusion.settings import readers
from fusion.store.client.dns import addresses
from fusion.store.client.room import Waiters, is_full

#: Bytes per second that a line should carry at least, and the most seconds that a request gets in addition for its size.
_SLOWEST = 256 * 1024
_LONGEST = 6.0
#: Bytes of a request above which it gets more time.
_LARGE = _SLOWEST // 4

#: Parsers of the options that a url, or RQ's SENTINEL dict, may have.
_READ: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("socket_timeout", "socket_connect_timeout"), readers.seconds(0.05, readers.ATTEMPT)),
    "max_connections": readers.whole(1),
    "port": readers.whole(1, 65535),
    "db": readers.whole(0, 2**31 - 1),
}


def check_options(given: dict[str, Any], where: str) -> dict[str, Any]:
    """Parse the numbers in `given`: redis-py and the system would accept nan, or wait for ever. ConfigurationError names the option."""
    for name, read in _READ.items():
        if (value := given.get(name)) is not None:
            try:
                given[name] = read(value)
            except readers.Invalid as error:
                raise ConfigurationError(f"{where}: {name} is {value!r}; {error}", code="FUS-205") from None
    return given


def time_for(size: int) -> float:
    """Return the seconds that a request of `size` bytes gets in addition; 0 if it is small."""
    return min(size / _SLOWEST, _LONGEST) if size > _LARGE else 0.0


class _Sized(AbstractConnection):
    """Counts `socket_timeout` from when a request can have arrived. A large request over a slow line would time out, and be sent again and
    again without its reply ever being read. The results of several jobs are such a request."""

    _prolonged = False
    #: True while `CleanPool.ready` has handed it out.
    quick = False
    #: What `_is_quiet` made for its socket: that socket, and the functions that check it.
    poller: tuple[Any, ...] = (None,)

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        """Send a command, with more time for its answer if it is large."""
        sock: Any = self._sock
        size = (
            len(command[0])
            if type(command) is list and len(command) == 1
            else sum(map(len, [command] if isinstance(command, str) else command))
        )
        if sock is not None and type(command) is list and size <= _LARGE and not (self._prolonged or self.health_check_interval):
            self._send(sock, command)
            return
        more = time_for(size)
        if (more or self._prolonged) and sock is not None and self.socket_timeout is not None:
            self._prolonged = bool(more)
            sock.settimeout(self.socket_timeout + more)
        super().send_packed_command(command, check_health)  # type: ignore[no-untyped-call]

    def _send(self, sock: Any, command: list[bytes]) -> None:
        """Do what redis-py's method does for a connection that is there and needs no check."""
        try:
            for part in command:
                sock.sendall(part)
        except BaseException as error:
            self.disconnect()  # type: ignore[no-untyped-call, unused-ignore]
            if isinstance(error, TimeoutError):
                raise errors.TimeoutError("Timeout writing to socket") from error
            if isinstance(error, OSError):
                number, text = error.args[:2] if len(error.args) > 1 else ("UNKNOWN", error)
                raise errors.ConnectionError(f"Error {number} while writing to socket. {text}.") from error
            raise


class UnixConnection(_Sized, UnixDomainSocketConnection):
    """A connection over a unix socket."""

    # redis-py reports metrics with these when a connection fails, and sets them for TCP only.
    host = "localhost"
    port = 0


class NamedConnection(_Sized, Connection):
    """A TCP connection to a host that may be a name; `socket_connect_timeout` limits its lookup too."""

    def _connect(self) -> Any:
        name, refused = self.host, None
        for address in addresses(name, self.socket_connect_timeout):
            self.host = address  # for redis-py's own lookup, which then has nothing to resolve
            try:
                return super()._connect()  # type: ignore[no-untyped-call]
            except OSError as error:
                refused = error
            finally:
                self.host = name
        raise refused or OSError("the host has no address")


# Here the order of bases puts the lookup below TLS, which needs the name.
class NamedSSLConnection(SSLConnection, NamedConnection):
    """A TLS connection to a host that may be a name."""


class NamedMasterConnection(SentinelManagedConnection, NamedConnection):
    """A TCP connection to the master that Sentinel names."""


class NamedMasterSSLConnection(SentinelManagedSSLConnection, NamedConnection):
    """A TLS connection to the master that Sentinel names."""


class CleanPool(ConnectionPool):
    """Closes a connection that comes back while an exception propagates, unless that is the server's reply. If a signal handler raises
    between a command and its reply, the next user of the connection would read that reply; redis-py notices only if it has arrived.

    A ready connection is handed out and taken back in a third of redis-py's time; all others go redis-py's way. If the pool may make no more,
    the call waits for one that comes back.
    """

    def reset(self) -> None:
        """Drop all connections and waiting calls, as in a process that was just forked."""
        self._waiters = Waiters()
        super().reset()

    def get_connection(self, *args: Any, **options: Any) -> Any:
        """Hand out a connection, and note on it the exception that the caller is handling."""
        connection: Any
        if self._waiters and self.pid == getpid():
            connection = self._waiters.wait(self._take, self)
        else:
            try:
                connection = self._take()
            except errors.ConnectionError as error:
                if not is_full(error):
                    raise
                connection = self._waiters.wait(self._take, self)
        connection.amid = id(sys.exception())  # an exception that the caller is handling already does not concern this exchange
        return connection

    def _take(self) -> Any:
        return self.ready(in_turn=True) or super().get_connection()  # type: ignore[no-untyped-call, unused-ignore]

    def release(self, connection: Any) -> None:
        """Take a connection back; one that was left in the middle of an exchange is closed first."""
        error = sys.exception()
        whole = error is None or isinstance(error, errors.ResponseError) or id(error) == getattr(connection, "amid", 0)
        self.take_back(connection, whole)

    def take_back(self, connection: Any, whole: bool) -> None:
        """Take a connection back, or None; unless the last exchange was `whole`, it is closed first."""
        if connection is None:
            return
        if not whole:
            connection.disconnect()
        if connection.quick and connection.pid == self.pid:  # in a forked process `reset` drops it later, as it drops all
            connection.quick, in_use = False, self._in_use_connections
            with self._lock:
                if connection in in_use:
                    in_use.remove(connection)
                    self._available_connections.append(connection)
        else:
            super().release(connection)  # type: ignore[no-untyped-call, unused-ignore]
        if self._waiters:
            self._waiters.wake()

    def ready(self, *, in_turn: bool = False) -> Any:
        """Take the connection that was used last. This process must have made it, it must be connected, and nothing may have come over it
        since: neither its end nor an unread reply. Else return None, and it stays in the pool; also while others wait for a connection,
        unless the caller is `in_turn`."""
        if self.pid != getpid() or (self._waiters and not in_turn):
            return None
        available = self._available_connections
        with self._lock:
            if not available:
                return None
            connection: Any = available.pop()
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
    if sock is None or reader is None or reader.has_data():
        return False
    known = connection.poller
    if known[0] is not sock:
        poller = select.poll()
        poller.register(sock, select.POLLIN)
        known = connection.poller = sock, poller.poll, sock.pending if isinstance(sock, SSLSocket) else None
    return not (known[1](0) or (known[2] is not None and known[2]()))


class CleanSentinelPool(SentinelConnectionPool, CleanPool):
    """A `CleanPool` that asks Sentinel for the master at each connect."""
