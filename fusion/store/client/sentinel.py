"""Redis behind Sentinel: from RQ's SENTINEL dict or a `redis+sentinel://[user:password@]host:26379,host2/mymaster/0` url."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

from redis.connection import SSLConnection
from redis.sentinel import Sentinel

from fusion.exceptions import ConfigurationError
from fusion.settings import mask_url
from fusion.store.client.sockets import (
    CleanPool,
    CleanSentinelPool,
    NamedConnection,
    NamedMasterConnection,
    NamedMasterSSLConnection,
    NamedSSLConnection,
    check_options,
)

_URL = re.compile(
    r"redis(?P<tls>s?)\+sentinel://(?:(?P<login>[^/]*)@)?(?P<hosts>[^/@]+)(?:/(?P<master>[^/?]+))?(?:/(?P<db>\d+))?/?\Z"
)
_HOST = re.compile(r"(\[[^]]+\]|[^:?#\s\[\]]+)(?::(\d+))?\Z")
_PORT = 26379


def is_sentinel_url(url: str) -> bool:
    """Return True for a url that names Sentinels instead of a server."""
    return url.startswith(("redis+sentinel://", "rediss+sentinel://"))


def sentinel_url(described: Mapping[str, Any]) -> str:
    """Return RQ's dict as a url for people: no login."""
    hosts = ",".join(f"{f'[{host}]' if ':' in host else host}:{port}" for host, port in _instances(described))
    scheme = "rediss" if described.get("SSL") else "redis"
    return f"{scheme}+sentinel://{hosts}/{quote(_master(described))}/{described.get('DB') or 0}"


def sentinel_pool(
    url: str, described: Mapping[str, Any] | None, options: dict[str, Any], login: Mapping[str, Any]
) -> CleanSentinelPool:
    """Make a pool that asks Sentinel for the master at each connect. `described` takes precedence over `url`; `login` is used if neither has
    one."""
    where = "SENTINEL" if described is not None else f"Redis url {mask_url(url)!r}"
    if described is None:
        described = _parse(url)
    # The Sentinels get the same limits; their own login and TLS come from SENTINEL_KWARGS.
    ours = {name: value for name, value in options.items() if not name.startswith("ssl_")}
    asked = {**ours, **check_options(dict(described.get("SENTINEL_KWARGS") or {}), where)}
    options |= check_options(dict(described.get("CONNECTION_KWARGS") or {}), where)
    if described.get("PASSWORD"):
        options |= {"username": described.get("USERNAME"), "password": described["PASSWORD"]}
    else:
        options |= login
    if described.get("SOCKET_TIMEOUT"):
        options |= check_options({"socket_timeout": described["SOCKET_TIMEOUT"]}, where)
    if not described.get("SSL"):
        options = {name: value for name, value in options.items() if not name.startswith(("ssl_", "redis_connect_func"))}
    kind = NamedMasterSSLConnection if described.get("SSL") else NamedMasterConnection
    options |= {**check_options({"db": described.get("DB") or 0}, where), "connection_class": kind}
    for _, port in _instances(described):
        check_options({"port": port}, where)
    manager = Sentinel(_instances(described), sentinel_kwargs=asked)  # type: ignore[no-untyped-call]
    for client in manager.sentinels:
        pool = client.connection_pool
        asking = NamedSSLConnection if issubclass(pool.connection_class, SSLConnection) else NamedConnection
        client.connection_pool = CleanPool(connection_class=asking, **pool.connection_kwargs)
    return CleanSentinelPool(_master(described), manager, **options)  # type: ignore[no-untyped-call]


def _master(described: Mapping[str, Any]) -> str:
    return str(described.get("MASTER_NAME") or "mymaster")


def _instances(described: Mapping[str, Any]) -> list[tuple[str, int]]:
    found = described.get("INSTANCES") or [("localhost", _PORT)]
    try:
        return [(str(host), int(port)) for host, port in found]
    except (TypeError, ValueError):
        raise ConfigurationError(f"SENTINEL INSTANCES is {found!r}; use a list of (host, port)", code="FUS-210") from None


def _parse(url: str) -> dict[str, Any]:
    match = _URL.match(url)
    hosts = [_HOST.match(item) for item in match["hosts"].split(",")] if match else []
    if match is None or None in hosts:
        raise ConfigurationError(
            f"Redis url {mask_url(url)!r} can't be parsed; use redis+sentinel://user:password@host:26379,host2:26379/mymaster/0",
            code="FUS-210",
        )
    username, _, password = (match["login"] or "").partition(":")
    return {
        "INSTANCES": [(host[1].strip("[]"), int(host[2] or _PORT)) for host in hosts if host],
        "MASTER_NAME": unquote(match["master"] or "mymaster"),
        "DB": int(match["db"] or 0),
        "USERNAME": unquote(username) or None,
        "PASSWORD": unquote(password) or None,
        "SSL": bool(match["tls"]),
    }
