"""The risks of a failover of this Redis, read before there is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import redis
from redis.exceptions import ResponseError

#: Seconds since its last acknowledgement after which a replica is not in sync: Redis's own limit for a good replica.
_LAG = 10
_COVERAGE = "cluster-require-full-coverage"


@dataclass(frozen=True, slots=True)
class Risk:
    """A reason why a failover would lose jobs, or could not happen.

    - `code`: see docs/errors.md; `about`: the nodes, empty for this Redis; `what`: a sentence;
    - `fix`: commands, one a line. `{cli}` stands for redis-cli with the address of this Redis; a comma begins an explanation.
    """

    code: str
    level: Literal["note", "warn", "fail"]
    about: str
    what: str
    fix: str


def can_fail_over(conn: redis.Redis, info: Mapping[str, Any], *, cluster: bool) -> bool:
    """Return True if another server may replace this one: it has a replica, or is behind Sentinel or in a cluster. `info`: INFO replication."""
    return cluster or _behind_sentinel(conn) or (info.get("role") == "master" and bool(info.get("connected_slaves")))


def read_risks(conn: redis.Redis, info: Mapping[str, Any], *, cluster: bool) -> list[Risk]:
    """Return the risks of a failover; none for a replica. `info`: INFO replication. Only a node of a `cluster` gets further commands. Raises
    what redis-py raises, except for a command that this user may not use."""
    if info.get("role") != "master" or not can_fail_over(conn, info, cluster=cluster):
        return []
    found = _of_replicas(info, automatic=cluster or _behind_sentinel(conn), cluster=cluster)
    return found + _of_cluster(conn, alone=not info.get("connected_slaves")) if cluster else found


def _behind_sentinel(conn: redis.Redis) -> bool:
    return bool(getattr(conn.connection_pool, "service_name", None))


def _of_replicas(info: Mapping[str, Any], *, automatic: bool, cluster: bool) -> list[Risk]:
    """Return the risks that INFO shows. `automatic`: no person decides on a failover."""
    rows = [row for key, row in info.items() if key.startswith("slave") and isinstance(row, Mapping)]
    if not info.get("connected_slaves"):
        what = "no replica is connected to this Redis: if it dies, nothing takes over, or a server without its jobs does"
        more = "CLUSTER REPLICATE ID-OF-THIS-PRIMARY" if cluster else "REPLICAOF HOST-OF-THIS-PRIMARY PORT"
        return [Risk("FUS-443", "warn", "", what, f"{{cli}} INFO replication\nredis-cli -h A-SECOND-SERVER {more}")]
    found = list[Risk]()
    if not any(_in_sync(row, info) for row in rows):
        states = ", ".join(f"{row.get('ip')}:{row.get('port')} is {_state(row)}" for row in rows[:3])
        what = f"no replica is in sync with this Redis ({states}): a failover now loses accepted jobs, all of them at worst"
        fix = "{cli} INFO replication, until it shows a replica as online; the log of the replica has the cause"
        found.append(Risk("FUS-444", "fail" if automatic else "warn", "", what, fix))
    # INFO has this line only where the setting is over 0, so the right to read settings is not needed.
    if "min_slaves_good_slaves" not in info:
        what = "min-replicas-to-write is 0: a primary that is cut off from its replicas still accepts jobs, and a failover loses them"
        fix = "{cli} CONFIG SET min-replicas-to-write 1  # also on the replicas; without one in sync, writes are then refused\n{cli} CONFIG REWRITE"
        found.append(Risk("FUS-445", "note", "", what, fix))
    return found


def _in_sync(row: Mapping[str, Any], info: Mapping[str, Any]) -> bool:
    # A replica that still loads its first copy is shown as online, too, but has acknowledged nothing.
    return (
        row.get("state") == "online"
        and row.get("lag", 0) <= _LAG
        and bool(row.get("offset") or not info.get("master_repl_offset"))
    )


def _state(row: Mapping[str, Any]) -> str:
    if row.get("state") != "online":
        return str(row.get("state"))
    return f"silent for {row['lag']} s" if row.get("lag", 0) > _LAG else "loading"


def _of_cluster(conn: redis.Redis, *, alone: bool) -> list[Risk]:
    """Return the risks from a setting of the cluster and from its other primaries. `alone`: this primary has no replica; that is reported already."""
    coverage, bare = _setting(conn, _COVERAGE), _without_replica(conn, but=_own_id(conn) if alone else "")
    found = list[Risk]()
    if bare and coverage != "no":
        what = f"primaries of this cluster have no replica ({', '.join(bare[:3])}{' ...' * (len(bare) > 3)}): if one dies, "
        what += "all queues stop" if coverage else f"all queues stop, unless {_COVERAGE} is no"
        found.append(
            Risk(
                "FUS-446",
                "warn",
                bare[0],
                what,
                "{cli} CLUSTER NODES\nredis-cli -h ANOTHER-NODE CLUSTER REPLICATE ID-OF-THAT-PRIMARY",
            )
        )
    if coverage == "yes":
        what = f"{_COVERAGE} is yes: if any primary of the cluster is lost with its replicas, all queues stop"
        fix = f"{{cli}} CONFIG SET {_COVERAGE} no  # also on each other node\n{{cli}} CONFIG REWRITE"
        found.append(Risk("FUS-447", "note", "", what, fix))
    elif coverage is None:
        what = f"{_COVERAGE} can't be read: this Redis user may not use CONFIG GET"
        fix = f"{{cli}} CONFIG GET {_COVERAGE}, as a user with that right, or read it in the provider's console: it should be no"
        found.append(Risk("FUS-448", "note", "", what, fix))
    return found


def _setting(conn: redis.Redis, name: str) -> str | None:
    """Return a setting of the server; None if it can't be read."""
    try:
        pairs: Any = conn.execute_command("CONFIG", "GET", name)  # type: ignore[no-untyped-call]
    except ResponseError:
        return None
    values = list(pairs.values()) if isinstance(pairs, dict) else pairs[1::2]
    return _text(values[0]) if values else None


def _own_id(conn: redis.Redis) -> str:
    try:
        return _text(conn.execute_command("CLUSTER", "MYID"))  # type: ignore[no-untyped-call]
    except ResponseError:
        return ""


def _without_replica(conn: redis.Redis, but: str) -> list[str]:
    """Return the addresses of primaries without a replica, but not of the node with this id; none if this user may not read them."""
    try:
        ranges: Any = conn.execute_command("CLUSTER", "SLOTS")  # type: ignore[no-untyped-call]
    except ResponseError:
        return []
    # Each range: its first and last slot, its primary, replicas. A node: host, port, id ...
    bare = [primary for _, _, primary, *replicas in ranges if not replicas and _text(primary[2]) != but]
    return sorted({f"{_text(primary[0] or '')}:{primary[1]}" for primary in bare})


def _text(raw: Any) -> str:
    return raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
