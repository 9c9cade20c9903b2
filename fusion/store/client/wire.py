"""The seam to redis-py's internals: sends packed commands and reads replies over its connections, without its client. The client costs as
much again as a small script. Nothing else in Fusion uses a connection's internals; `tests/store/test_redis_py.py` checks for each redis-py
what is relied on here.

It keeps what the client does besides. A connection comes from the client's pool and goes back there; its own retry decides how often an
exchange is tried; a broken one is closed. So is one that an exception left before the whole reply was read, see `CleanPool`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import hiredis
from redis import Redis
from redis import exceptions as errors
from redis._parsers.hiredis import NOT_ENOUGH_DATA

from fusion.kernel.timeouts import deferred, holds
from fusion.store.client.adapter import client_of
from fusion.store.client.connections import BoundedRetry
from fusion.store.client.sockets import CleanPool

_CHUNK = 65536


class BorrowedConnection:
    """A connection borrowed from a client's pool. Connecting, sending and reading raise what redis-py raises; `release` or `drop` ends it."""

    def __init__(self, client: Redis) -> None:
        self._pool: Any = client.connection_pool
        self._connection: Any = self._pool.get_connection()

    def send(self, packed: bytes) -> None:
        """Send a packed command without reading a reply."""
        self._connection.send_packed_command([packed])

    def read(self) -> Any:
        """Read one reply; an error reply is raised as redis-py's exception."""
        return _read(self._connection)

    def read_many(self, count: int) -> list[Any]:
        """Read `count` replies; an error reply stands in its place."""
        connection = self._connection
        sock, reader = connection._sock, connection._parser._reader
        found: list[Any] = []
        while len(found) < count:
            answer = reader.gets()
            if answer is not NOT_ENOUGH_DATA:
                found.append(answer)
                continue
            _feed(connection, sock, reader)
        return found

    def exchange_many(self, packed: bytes, count: int) -> list[Any]:
        """Send `count` packed commands and read their replies, retrying as the connection's own retry says."""

        def once() -> list[Any]:
            self.send(packed)
            return self.read_many(count)

        found: list[Any] = self._connection.retry.call_with_retry(once, lambda error: self._connection.disconnect())
        return found

    def release(self) -> None:
        """Give the connection back to the pool."""
        self._pool.release(self._connection)

    def drop(self) -> None:
        """Close the connection before it goes back: a reply may still come, which must not serve another call."""
        self._connection.disconnect()
        self.release()


def _read(connection: Any) -> Any:
    sock, reader = connection._sock, connection._parser._reader
    if sock is None or reader is None or reader.has_data():
        return connection.read_response()
    # redis-py's own method takes as long as all that Fusion does before it
    _feed(connection, sock, reader)
    answer = reader.gets()
    if answer is NOT_ENOUGH_DATA:
        return connection.read_response()
    if isinstance(answer, Exception):
        if not isinstance(answer, errors.ResponseError):
            connection.disconnect()
        raise answer
    return answer


def _feed(connection: Any, sock: Any, reader: Any) -> None:
    """Pass received bytes to the parser. If none can come, raise redis-py's exception and close the connection."""
    try:
        data = sock.recv(_CHUNK)
    except OSError as error:
        connection.disconnect()
        if isinstance(error, TimeoutError):
            raise errors.TimeoutError("Timeout reading from socket") from error
        raise errors.ConnectionError(f"Error while reading from socket: {error.args}") from error
    if not data:
        connection.disconnect()
        raise errors.ConnectionError("Connection closed by server.")
    reader.feed(data)


def ask(client: Redis, packed: bytes) -> Any:
    """Send a packed command over a connection of the client, which is one of ours, and return the reply. Raises what redis-py raises; tries as
    often as the connection's own retry says."""
    if not holds:
        return _asked(client.connection_pool, packed)
    with deferred():
        return _asked(client.connection_pool, packed)


def _asked(pool: Any, packed: bytes) -> Any:
    failed: list[Exception] = []
    connection, whole = None, False
    try:
        connection = pool.ready() or pool.get_connection()
        answer = _attempt(connection, packed, failed)
        if failed:
            answer = _go_on(connection, packed, failed)
        whole = True
        return answer
    except errors.ResponseError:
        whole = True
        raise
    finally:
        pool.take_back(connection, whole)


def _attempt(connection: Any, packed: bytes, failed: list[Exception]) -> Any:
    """Send a packed command and read its reply. An error goes into `failed`."""
    try:
        connection.send_packed_command([packed])
        return _read(connection)
    except (errors.RedisError, OSError) as error:
        failed.append(error)
        return None


def _go_on(connection: Any, packed: bytes, failed: list[Exception]) -> Any:
    """Go on as the connection's own retry says, after a first attempt that failed with this error."""

    def once() -> Any:
        if failed:
            raise failed.pop()
        connection.send_packed_command([packed])
        return _read(connection)

    return connection.retry.call_with_retry(once, lambda error: connection.disconnect())


def inside(connection: Any) -> tuple[Any, Callable[[str], Exception]]:
    """Return the socket of a redis-py connection, None while it is not connected, and the function that makes redis-py's exception of an
    error reply."""
    return connection._sock, connection._parser.parse_error


def is_ours(connection: Redis) -> bool:
    """Return True for a client that Fusion made. Other clients are used by their own methods only. So are those whose sending a subclass or a
    tracer has replaced: they may do more than send."""
    ordinary: Any = type(connection).execute_command
    if type(ordinary) is not FunctionType or ordinary.__module__ != Redis.__module__ or hasattr(ordinary, "__wrapped__"):
        return False
    pool = connection.connection_pool
    if connection.connection is not None or not isinstance(pool, CleanPool):
        return False
    return isinstance(pool.connection_kwargs.get("retry"), BoundedRetry)


def pack(command: tuple[Any, ...]) -> bytes | None:
    """Encode a command as it is sent; None if it holds a value that only redis-py can encode, or refuse."""
    # hiredis converts an int to text itself, and Python checks for signals meanwhile: 3.5.0 does not survive a handler that raises there.
    if int in map(type, command):
        command = tuple([repr(word) if type(word) is int else word for word in command])
    try:
        packed: bytes = hiredis.pack_command(command)
    except TypeError:
        return None
    return packed


def answers(connection: Redis, packed: bytes, count: int) -> list[Any] | None:
    """Send `count` packed commands that only read, and return their replies. None if the client itself must send them: it is not Fusion's, or
    a reply is an error."""
    client = client_of(connection)
    if not is_ours(client):
        return None
    with deferred():
        line = BorrowedConnection(client)
        try:
            found = line.exchange_many(packed, count)
        except BaseException:
            line.drop()
            raise
        line.release()
    return None if any(isinstance(one, Exception) for one in found) else found


def sender(connection: Redis) -> Callable[..., Any]:
    """Return the function that sends a command, given word by word, and returns the reply. It raises what `connection.execute_command` does."""
    client = client_of(connection)
    ordinary: Callable[..., Any] = connection.execute_command  # type: ignore[assignment, unused-ignore]
    if not is_ours(client):
        return ordinary

    def send(*command: Any) -> Any:
        packed = pack(command)
        if packed is None:
            return ordinary(*command)
        return ask(client, packed)

    return send
