"""RQ's name for the error of a missing connection, and the errors of Redis, which are of redis-py's family, too."""

from __future__ import annotations

from inspect import signature
from typing import Any

from redis import Redis

from fusion.exceptions import NoRedisError as NoRedisConnectionException
from fusion.rq.hints import missing
from fusion.store.client.given import RedisFull as RedisFull
from fusion.store.client.given import RedisUnavailable as RedisUnavailable
from fusion.store.client.given import client_like as client_like
from fusion.store.client.given import given as given
from fusion.store.client.given import url_for as url_for

__all__ = ["NoRedisConnectionException", "RedisFull", "RedisUnavailable", "client_like", "given", "url_for"]


def get_connection_kwargs(connection: Redis) -> dict[str, Any]:
    """Return the arguments by which another process makes the same client."""
    options, known = dict(connection.connection_pool.connection_kwargs), signature(Redis).parameters
    if "path" in options:
        options["unix_socket_path"] = options["path"]
    return {
        name: value for name, value in options.items() if name in known and isinstance(value, (str, int, float, bool, type(None)))
    }


def parse_connection(connection: Redis) -> tuple[type[Redis], type[Any], dict[str, Any]]:
    """Return the class of a client, that of its connections, and `get_connection_kwargs`."""
    return type(connection), connection.connection_pool.connection_class, get_connection_kwargs(connection)


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
