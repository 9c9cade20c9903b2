"""Identifies the server, and decides whether Fusion may trust jobs to it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import redis

from fusion.exceptions import ConfigurationError
from fusion.kernel import defaults
from fusion.store.client.cluster import untagged
from fusion.store.layout.slots import tag_of

MIN_VERSION = (6, 2)


@dataclass(frozen=True)
class ServerInfo:
    """A server as INFO describes it. `version` is the Redis version whose commands it speaks, `release` its own version."""

    version: tuple[int, ...]
    run_id: str
    server_name: str
    release: str
    maxmemory_policy: str
    process_id: int
    role: str
    cluster: bool
    #: True while the server refuses writes because it can't save them (full disk, for example).
    unsaved: bool

    def __str__(self) -> str:
        return f"{self.server_name} {self.release}, run_id {self.run_id[:12]}"


def parse_version(text: str) -> tuple[int, ...]:
    """Parse `7.0.15` to `(7, 0, 15)`; anything after the numbers is ignored."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def read_server(conn: redis.Redis) -> ServerInfo:
    """Read INFO once and return the server. Raises what redis-py raises."""
    info: dict[str, Any] = conn.info()
    name = "Valkey" if info.get("server_name") == "valkey" else "Redis"
    version = str(info.get("redis_version", ""))
    return ServerInfo(
        version=parse_version(version),
        run_id=str(info.get("run_id", "")),
        server_name=name,
        release=str(info.get("valkey_version", version)),
        maxmemory_policy=str(info.get("maxmemory_policy", "")),
        process_id=int(info.get("process_id", 0)),
        role=str(info.get("role", "")),
        cluster=bool(info.get("cluster_enabled", 0)),
        unsaved=info.get("aof_last_write_status") == "err" or info.get("rdb_last_bgsave_status") == "err",
    )


def check_server(conn: redis.Redis, allow_eviction: bool = False, prefix: str = defaults.KEY_PREFIX) -> ServerInfo:
    """Read INFO once, and refuse a server on which jobs under this prefix are not safe with ConfigurationError. Raises what redis-py raises if
    INFO can't be read."""
    server = read_server(conn)
    if server.version < MIN_VERSION:
        found = server.release or "of unknown version"
        raise ConfigurationError(f"this is {server.server_name} {found}; use Redis 6.2 or newer, or Valkey", code="FUS-206")
    if server.cluster and not tag_of(prefix):
        raise ConfigurationError(untagged(prefix), code="FUS-206")
    if server.maxmemory_policy not in ("", "noeviction") and not allow_eviction:
        raise ConfigurationError(
            f"this Redis may evict keys, that is lose jobs: maxmemory-policy is {server.maxmemory_policy}; set it to noeviction"
            " on the server (CONFIG SET maxmemory-policy noeviction), or accept that with FUSION_ALLOW_EVICTION=1",
            code="FUS-206",
        )
    return server
