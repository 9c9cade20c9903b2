"""Clients that a program made itself: their errors, and the url by which another process reaches the same Redis."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import redis
from redis import ConnectionPool, Redis
from redis.connection import SSLConnection, UnixDomainSocketConnection
from redis.sentinel import SentinelConnectionPool

from fusion.exceptions import ConfigurationError, StoreFull, StoreUnavailable
from fusion.store.client.cluster import written
from fusion.store.client.connections import get_current_connection
from fusion.store.client.errors import raise_as


class RedisUnavailable(StoreUnavailable, redis.ConnectionError):
    """Redis can't be reached, or can't do this just now; caught by `except redis.RedisError`, too."""


class RedisFull(StoreFull, redis.exceptions.OutOfMemoryError):
    """Redis has reached its `maxmemory`; caught by `except redis.RedisError`, too."""


def given(connection: Redis | None) -> Redis:
    """Return the client that a program gave, else this process's own. Errors of calls over it are of redis-py's family, too."""
    found = get_current_connection() if connection is None else connection
    raise_as(found, RedisUnavailable, RedisFull)
    return found


def client_like(kind: type[Redis], connections: type[Any], options: dict[str, Any]) -> Redis:
    """Return a client of this class. `connections`: the class of its connections; `options`: what they are made with."""
    return kind(connection_pool=ConnectionPool(connection_class=connections, **options))


def url_for(connection: Redis) -> str:
    """Return a url by which another process reaches the same Redis, Sentinels or cluster. ConfigurationError for a client that no url describes."""
    pool = connection.connection_pool
    options = pool.connection_kwargs
    login = ""
    if options.get("password"):
        login = f"{quote(options.get('username') or '', safe='')}:{quote(options['password'], safe='')}@"
    db = int(options.get("db") or 0)
    if isinstance(pool, SentinelConnectionPool):
        return f"redis+sentinel://{login}{_sentinels(pool)}/{quote(pool.service_name, safe='')}/{db}"
    if issubclass(pool.connection_class, UnixDomainSocketConnection):
        return f"unix://{login}{options['path']}?db={db}"
    secure = issubclass(pool.connection_class, SSLConnection)
    query = (
        {name: value for name, value in options.items() if name.startswith("ssl_") and isinstance(value, str)} if secure else {}
    )
    if secure and options.get("ssl_cert_reqs") in (None, 0):
        query["ssl_cert_reqs"] = "none"
    more = f"?{urlencode(query)}" if query else ""
    scheme = "rediss" if secure else "redis"
    if nodes := options.get("nodes"):
        return f"{scheme}+cluster://{login}{','.join(map(written, nodes.seeds))}{more}"
    return f"{scheme}://{login}{written((options.get('host', 'localhost'), options.get('port', 6379)))}/{db}{more}"


def _sentinels(pool: SentinelConnectionPool) -> str:
    """Return the addresses of its Sentinels. ConfigurationError if they want a login, or if it uses TLS: no url has a place for that."""
    asked = [client.connection_pool for client in pool.sentinel_manager.sentinels]
    has_password = any(one.connection_kwargs.get("password") for one in asked)
    if has_password or any(issubclass(one.connection_class, SSLConnection) for one in [pool, *asked]):
        raise ConfigurationError(
            "no url describes this client: it uses TLS, or its Sentinels want a password; set FUSION_SENTINEL for the worker",
            code="FUS-205",
        )
    return ",".join(written((one.connection_kwargs["host"], one.connection_kwargs["port"])) for one in asked)
