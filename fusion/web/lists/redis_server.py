"""Redis itself over HTTP: `/api/v1/redis`."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from redis import Redis

from fusion.doctor.finding import ordered
from fusion.doctor.look import Look
from fusion.doctor.verdict import CHECKS, examine
from fusion.documents import times
from fusion.settings import get_settings
from fusion.store.access import inspector_of, server_inspector_of
from fusion.web.exchange import Request, Response
from fusion.web.mending import finding_view
from fusion.web.routing import Route

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What `doctor` looks at of the server.
_CHECKS = ("server", "eviction", "clocks", "clients", "persistence", "latency", "rights", "listpack")
#: Commands that are shown: those that took most time, and those that took long.
_COMMANDS, _SLOW = 12, 16


class RedisServer:
    """The call about the server."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def routes(self) -> list[Route]:
        """What is answered where."""
        return [Route("GET", "/api/v1/redis", self.redis, "read", "redis", answer="RedisServer")]

    def redis(self, request: Request) -> Response:
        """Show how Redis is: memory, what it saves, clients, how fast it answers, and what `doctor` finds of it."""
        look, inspector = Look(self._connection, get_settings()), server_inspector_of(self._connection)
        findings = ordered(examine(look, [check for check in CHECKS if check.name in _CHECKS]))
        info, pings, slow = look.server_whole.info, sorted(look.server_whole.pings), inspector.slow(_SLOW)
        at = inspector_of(self._connection).now()
        document = {
            "at": times.iso(at),
            **_about(info, at),
            "ping": {"p50": pings[len(pings) // 2], "max": pings[-1]} if pings else None,
            "commands": [
                {"name": one.name, "calls": one.calls, "seconds": round(one.seconds, 6), "p99": one.p99}
                for one in inspector.commands(_COMMANDS)
            ],
            "slow": None if slow is None else [{"at": _iso(one.at), "seconds": one.seconds, "name": one.name} for one in slow],
            "findings": [finding_view(one) for one in findings],
        }
        return Response.json(document)


def _about(info: Mapping[str, Any], at: datetime) -> dict[str, Any]:
    """What INFO tells; null for what this server does not."""
    number = info.get
    began = at - timedelta(seconds=int(number("uptime_in_seconds") or 0))
    return {
        "engine": "Valkey" if number("valkey_version") else "Redis",
        "version": str(number("valkey_version") or number("redis_version") or ""),
        "role": str(number("role") or ""),
        "replicas": int(number("connected_slaves") or 0),
        "started_at": times.iso(began.replace(second=0, microsecond=0)),
        "memory": {
            "used": number("used_memory"),
            "peak": number("used_memory_peak"),
            "rss": number("used_memory_rss"),
            "max": number("maxmemory") or None,
            "policy": str(number("maxmemory_policy") or ""),
            "fragmentation": number("mem_fragmentation_ratio"),
            "evicted_keys": number("evicted_keys"),
        },
        "persistence": {
            "appends": bool(number("aof_enabled")),
            "append_failed": number("aof_last_write_status") == "err",
            "snapshot_at": _iso(number("rdb_last_save_time")),
            "snapshot_failed": number("rdb_last_bgsave_status") == "err",
            "unsaved_changes": number("rdb_changes_since_last_save"),
        },
        "clients": {"connected": number("connected_clients"), "blocked": number("blocked_clients"), "max": number("maxclients")},
        "commands_per_second": number("instantaneous_ops_per_sec"),
        "keys": sum(one.get("keys", 0) for name, one in info.items() if name.startswith("db") and isinstance(one, dict)),
    }


def _iso(seconds: Any) -> str | None:
    return times.iso(datetime.fromtimestamp(seconds, timezone.utc)) if isinstance(seconds, int) and seconds > 0 else None
