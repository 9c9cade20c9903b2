"""Sending a command and reading its answer over redis-py's connections, without its client: that costs as much again as a small script.

What the client does besides is kept: the connection comes from its pool and goes back there, the connection's own retry decides how often an
exchange is tried, and one that broke is closed. So is one that an exception left before the whole answer was read, see `CleanPool`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import hiredis
from redis import Redis

from fusion.kernel.timeouts import deferred
from fusion.store.client.adapter import client_of
from fusion.store.client.connections import BoundedRetry


def is_ours(connection: Redis) -> bool:
    """Made by Fusion. Somebody else's is used by its own methods only, and so is one whose sending a subclass or a tracer has replaced:
    they may do more than send."""
    ordinary: Any = type(connection).execute_command
    if type(ordinary) is not FunctionType or ordinary.__module__ != Redis.__module__ or hasattr(ordinary, "__wrapped__"):
        return False
    pool = connection.connection_pool
    return connection.connection is None and isinstance(pool.connection_kwargs.get("retry"), BoundedRetry)


def pack(command: tuple[Any, ...]) -> bytes | None:
    """As it is sent; None if it holds what only redis-py knows how to encode, or to refuse."""
    # Of an int hiredis makes a text itself, and Python looks for signals amid that: 3.5.0 does not survive a handler that raises there.
    command = tuple([repr(word) if type(word) is int else word for word in command])
    try:
        packed: bytes = hiredis.pack_command(command)
    except TypeError:
        return None
    return packed


def sender(connection: Redis) -> Callable[..., Any]:
    """What sends a command, word by word, and returns the answer. Raises what `connection.execute_command` does."""
    client: Any = client_of(connection)
    ordinary: Callable[..., Any] = connection.execute_command  # type: ignore[assignment, unused-ignore]
    if not is_ours(client):
        return ordinary
    pool = client.connection_pool

    def send(*command: Any) -> Any:
        packed = pack(command)
        if packed is None:
            return ordinary(*command)
        line: Any = None

        def exchange() -> Any:
            line.send_packed_command([packed])
            return line.read_response()

        with deferred():
            try:
                line = pool.get_connection()
                return line.retry.call_with_retry(exchange, lambda error: line.disconnect())
            finally:
                if line is not None:
                    pool.release(line)

    return send
