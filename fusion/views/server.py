"""Redis itself, as every interface shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Literal

from fusion.views.base import View, part, public, view
from fusion.views.finding import FindingView

if TYPE_CHECKING:
    from typing import Self

    from fusion.doctor.finding import Finding
    from fusion.store.read.server_inspector import CommandTime, SlowCommand


@part
class MemoryView(View):
    """Memory of Redis."""

    used: int | None = public("Memory of data and buffers.", unit="bytes")
    peak: int | None = public("The peak of that memory.", unit="bytes")
    rss: int | None = public("Memory of the process.", unit="bytes")
    max: int | None = public("The limit; null for none.", unit="bytes")
    policy: str = public("What happens at the limit (maxmemory-policy).")
    fragmentation: float | None = public("Memory of the process by that of its data.")
    evicted_keys: int | None = public("Keys that were evicted at the limit.")


@part
class PersistenceView(View):
    """The persistence of Redis."""

    appends: bool = public("Whether it writes each change to a file (AOF).")
    append_failed: bool = public("Whether the last such write failed.")
    snapshot_at: datetime | None = public("When it last saved a snapshot (RDB).")
    snapshot_failed: bool = public("Whether the last snapshot failed.")
    unsaved_changes: int | None = public("Changes since the last snapshot.")


@part
class ClientsView(View):
    """Clients of Redis."""

    connected: int | None = public("How many are connected.")
    blocked: int | None = public("How many wait in a blocking command.")
    max: int | None = public("How many may connect.")


@part
class PingView(View):
    """The reply times of Redis."""

    p50: float = public("Half of the answers came within this time.", unit="seconds")
    max: float = public("The slowest one.", unit="seconds")


@part
class CommandTimeView(View):
    """The time that a command has cost."""

    name: str = public("The command.")
    calls: int = public("How often it was called.")
    seconds: float = public("How long all calls took.", unit="seconds")
    p99: float | None = public("99 % of the calls took at most this long.", unit="seconds")


@part
class SlowCommandView(View):
    """A call that took long."""

    at: datetime | None = public("When it was.")
    seconds: float = public("How long it took.", unit="seconds")
    name: str = public("The command.")


@view
class RedisServerView(View):
    """Redis itself. Fields that this server does not report are null."""

    at: datetime = public("When this was read, by Redis's clock.")
    engine: Literal["Redis", "Valkey"] = public("Which server it is.")
    version: str = public("Its version.")
    role: str = public("`master` or `slave`.")
    replicas: int = public("Replicas that are connected.")
    started_at: datetime = public("When it started, to the minute.")
    memory: MemoryView = public("Its memory.")
    persistence: PersistenceView = public("What it saves.")
    clients: ClientsView = public("Its clients.")
    commands_per_second: int | None = public("How many commands it runs now.", unit="commands a second")
    keys: int = public("Keys in all its databases.")
    ping: PingView | None = public("How fast it answers.")
    commands: list[CommandTimeView] = public("Commands that took most time, ever.")
    slow: list[SlowCommandView] | None = public("Calls that took long, the newest first.")
    findings: list[FindingView] = public("Findings of `doctor` about it.")

    @classmethod
    def of(
        cls,
        info: Mapping[str, Any],
        at: datetime,
        pings: Sequence[float],
        commands: Sequence[CommandTime],
        slow: Sequence[SlowCommand] | None,
        findings: Sequence[Finding],
    ) -> Self:
        """Make the view. `info`: the reply of INFO; `pings`: seconds until each answer, the fastest first."""
        number = info.get
        began = at - timedelta(seconds=int(number("uptime_in_seconds") or 0))
        return cls(
            at=at,
            engine="Valkey" if number("valkey_version") else "Redis",
            version=str(number("valkey_version") or number("redis_version") or ""),
            role=str(number("role") or ""),
            replicas=int(number("connected_slaves") or 0),
            started_at=began.replace(second=0, microsecond=0),
            memory=MemoryView(
                used=number("used_memory"),
                peak=number("used_memory_peak"),
                rss=number("used_memory_rss"),
                max=number("maxmemory") or None,
                policy=str(number("maxmemory_policy") or ""),
                fragmentation=number("mem_fragmentation_ratio"),
                evicted_keys=number("evicted_keys"),
            ),
            persistence=PersistenceView(
                appends=bool(number("aof_enabled")),
                append_failed=number("aof_last_write_status") == "err",
                snapshot_at=_time(number("rdb_last_save_time")),
                snapshot_failed=number("rdb_last_bgsave_status") == "err",
                unsaved_changes=number("rdb_changes_since_last_save"),
            ),
            clients=ClientsView(
                connected=number("connected_clients"), blocked=number("blocked_clients"), max=number("maxclients")
            ),
            commands_per_second=number("instantaneous_ops_per_sec"),
            keys=sum(one.get("keys", 0) for name, one in info.items() if name.startswith("db") and isinstance(one, dict)),
            ping=PingView(p50=pings[len(pings) // 2], max=pings[-1]) if pings else None,
            commands=[
                CommandTimeView(name=one.name, calls=one.calls, seconds=round(one.seconds, 6), p99=one.p99) for one in commands
            ],
            slow=None
            if slow is None
            else [SlowCommandView(at=_time(one.at), seconds=one.seconds, name=one.name) for one in slow],
            findings=[FindingView.of(one) for one in findings],
        )


def _time(seconds: Any) -> datetime | None:
    return datetime.fromtimestamp(seconds, timezone.utc) if isinstance(seconds, int) and seconds > 0 else None
