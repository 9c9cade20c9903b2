"""Check Redis: that it keeps its data, that this user has the needed rights, that the clocks agree."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fusion.doctor.finding import Finding, counted, some, words
from fusion.kernel.defaults import CLUSTER_PREFIX
from fusion.store.client.server import MIN_VERSION, parse_version

if TYPE_CHECKING:
    from fusion.doctor.look import Look
    from fusion.store.client.failover import Risk

#: Percent of `maxmemory`, and of `maxclients`, from which a finding is reported.
_FULL, _CLIENTS = (80.0, 95.0), 80.0
#: Seconds by which the two clocks may differ.
_SKEW = (2.0, 30.0)
#: Seconds from which replies count as slow: the median, and the slowest.
_SLOW, _SLOWEST = 0.01, 0.25
#: With a smaller value of these settings a job needs twice the memory.
_LISTPACK = 1024


def server(look: Look) -> Iterator[Finding]:
    """Report a server that is too old, in cluster mode without a hash tag, a replica, loading, or unable to save."""
    info, call = look.server.info, look.program
    version = parse_version(str(info.get("redis_version", "")))
    if version and version < MIN_VERSION:
        yield Finding(
            "FUS-401",
            "fail",
            "server",
            "",
            f"Redis {info['redis_version']} is too old",
            "upgrade Redis to 6.2 or newer, or Valkey",
        )
    if info.get("cluster_enabled") and not look.tagged:
        what = f"Redis runs in cluster mode, and the prefix {look.settings.prefix} has no hash tag: its keys would be on several nodes"
        fix = f"FUSION_REDIS_URL=redis+cluster://HOST:PORT, and FUSION_PREFIX='{CLUSTER_PREFIX}' or another with a hash tag, for all of this fleet"
        yield Finding("FUS-402", "fail", "server", "", what, fix)
    elif info.get("cluster_enabled") and look.nodes is None:
        what = "the URL names one node of a cluster: it can't follow the keys of this fleet to another node"
        yield Finding("FUS-427", "warn", "server", "", what, "FUSION_REDIS_URL=redis+cluster://HOST:PORT, for all of this fleet")
    if info.get("role") == "slave":
        what = "this Redis is a replica: nothing can be enqueued or run here"
        yield Finding(
            "FUS-403", "fail", "server", "", what, f"{call} info --url URL-OF-THE-MASTER\nor have FUSION_SENTINEL find it"
        )
    if info.get("aof_last_write_status") == "err" or info.get("rdb_last_bgsave_status") == "err":
        what = "Redis can't save its data and may refuse to write: its disk is full, or not to be written"
        yield Finding("FUS-404", "fail", "server", "", what, f"df -h; make room, then: {look.redis_cli} BGSAVE")
    if info.get("loading"):
        yield Finding("FUS-405", "warn", "server", "", "Redis is still loading its data", f"{look.redis_cli} INFO persistence")


def nodes(look: Look) -> Iterator[Finding]:
    """Report nodes of a cluster that can't be reached from here."""
    for node, reason in (look.nodes or {}).items():
        what = f"the node {node} of the cluster can't be reached from here: {reason}"
        fix = f"start it; or, if it has another address from here: FUSION_CLUSTER_NAT='{node}=HOST:PORT ...', one for each node"
        yield Finding("FUS-428", "warn", "nodes", node, what, fix)


def eviction(look: Look) -> Iterator[Finding]:
    """Report a server that may evict keys, or has evicted some."""
    info = look.server.info
    policy, evicted = str(info.get("maxmemory_policy") or ""), _number(info.get("evicted_keys"))
    if policy not in ("", "noeviction"):
        gone = f", and has evicted {counted(evicted, 'key')} since its start" if evicted else ""
        what = f"Redis may evict keys, that is lose jobs: maxmemory-policy is {policy}{gone}"
        yield Finding(
            "FUS-406",
            "fail",
            "eviction",
            "",
            what,
            f"{look.redis_cli} CONFIG SET maxmemory-policy noeviction\n{look.keep_settings}",
        )
    elif evicted:
        what = (
            f"Redis has evicted {counted(evicted, 'key')} since its start: jobs may be lost, and sets may name some that are gone"
        )
        yield Finding("FUS-407", "warn", "eviction", "", what, f"{look.redis_cli} CONFIG RESETSTAT")


def memory(look: Look) -> Iterator[Finding]:
    """Report a server that will soon refuse writes for want of memory."""
    info = look.server.info
    most, used = _number(info.get("maxmemory")), _number(info.get("used_memory"))
    if most and 100 * used / most > _FULL[0]:
        share = 100 * used / most
        what = f"Redis is {share:.0f} % full ({used >> 20:,} of {most >> 20:,} MiB); when it is full, enqueues fail"
        fix = f"{look.redis_cli} CONFIG SET maxmemory {2 * most >> 20}mb\n{look.keep_settings}\n{look.program} info"
        yield Finding("FUS-408", "fail" if share > _FULL[1] else "warn", "memory", "", what, fix)


def failover(look: Look) -> Iterator[Finding]:
    """Report why a failover would lose jobs, or could not happen."""
    for risk in look.failover_risks:
        yield Finding(risk.code, risk.level, "failover", risk.about, risk.what, _fix_of(risk, look))


def _fix_of(risk: Risk, look: Look) -> str:
    return risk.fix.replace("{cli} CONFIG REWRITE", look.keep_settings).replace("{cli}", look.redis_cli)


def persistence(look: Look) -> Iterator[Finding]:
    """Report a server that loses accepted jobs when it dies."""
    if not _number(look.server.info.get("aof_enabled")):
        what = "Redis writes no append-only file: what was accepted since the last snapshot is lost when it dies"
        yield Finding(
            "FUS-409",
            "note",
            "persistence",
            "",
            what,
            f"{look.redis_cli} CONFIG SET appendonly yes\n{look.keep_settings}",
        )


def clients(look: Look) -> Iterator[Finding]:
    """Report a server with few free connections."""
    info = look.server.info
    most, there = _number(info.get("maxclients")), _number(info.get("connected_clients"))
    if most and 100 * there / most > _CLIENTS:
        what = f"{there:,} of {most:,} connections of Redis are taken"
        yield Finding(
            "FUS-410",
            "warn",
            "clients",
            "",
            what,
            f"{look.redis_cli} CONFIG SET maxclients {2 * most}\n{look.redis_cli} CLIENT LIST",
        )


def clocks(look: Look) -> Iterator[Finding]:
    """Report a difference between this machine's clock and the server's, and a server clock that was set back."""
    found = look.server
    off = abs(found.skew) - found.doubt
    if off > _SKEW[0]:
        way = "behind" if found.skew > 0 else "ahead of"
        what = f"the clock of this machine is {off:,.0f} s {way} that of Redis: ages, delays and logs are off by as much"
        fix = "timedatectl set-ntp true\nchronyc makestep, on the machine whose clock is wrong"
        yield Finding("FUS-411", "fail" if off > _SKEW[1] else "warn", "clocks", "", what, fix)
    ahead = [one.name for one in look.queues if one.oldest and one.oldest - look.at > timedelta(seconds=60)]
    beats = [w.name for w in look.everyone if w.last_heartbeat and w.last_heartbeat - look.at > timedelta(seconds=60)]
    if ahead or beats:
        where = f"jobs of {some(ahead)} come" if ahead else f"signs of life of {some(beats)} are"
        what = f"the clock of Redis was set back: {where} from its future"
        yield Finding(
            "FUS-412",
            "warn",
            "clocks",
            "",
            what,
            "chronyc tracking, on the machine of Redis: leases and delays are right again once it has caught up",
        )


def latency(look: Look) -> Iterator[Finding]:
    """Report slow replies of Redis."""
    pings = sorted(look.server_whole.pings)
    if pings and (pings[len(pings) // 2] > _SLOW or pings[-1] > _SLOWEST):
        what = f"Redis answers slowly: {pings[len(pings) // 2] * 1000:.1f} ms as a rule, {pings[-1] * 1000:.0f} ms at worst of {len(pings)}"
        yield Finding("FUS-413", "warn", "latency", "", what, f"{look.redis_cli} SLOWLOG GET 10\n{look.redis_cli} LATENCY DOCTOR")


def rights(look: Look) -> Iterator[Finding]:
    """Report rights that this Redis user lacks, and the use of the all-powerful user `default`."""
    found = look.server_whole
    if found.lacking:
        user = found.user or "USER"
        what = f"the Redis user {found.user or 'of this process'} may not {some(found.lacking, 6)}: workers need it (who only enqueues does not)"
        yield Finding("FUS-414", "warn", "rights", user, what, f"{look.redis_cli} ACL SETUSER {user} {look.acl_rules}")
    elif found.user == "default":
        what = "this process is the Redis user `default`, who may do everything"
        fix = f"{look.redis_cli} ACL SETUSER fusion on '>PASSWORD' {look.acl_rules}\nand put that user into FUSION_REDIS_URL"
        yield Finding("FUS-415", "note", "rights", "", what, fix)


def listpack(look: Look) -> Iterator[Finding]:
    """Report listpack limits that double the memory of a job."""
    config = look.server_whole.config
    if config is None:
        return
    name = next((n for n in ("hash-max-listpack-value", "hash-max-ziplist-value") if n in config), None)
    if name and _number(config[name]) < _LISTPACK:
        what = f"{name} is {config[name]}: a job with a longer value takes twice the memory"
        yield Finding(
            "FUS-416",
            "note",
            "listpack",
            "",
            what,
            f"{look.redis_cli} CONFIG SET {name} {_LISTPACK}\n{look.keep_settings}",
        )


def keys(look: Look) -> Iterator[Finding]:
    """Report keys of an unexpected type that the other checks came across."""
    for key, kind in sorted(look.broken.items()):
        what = f"{key} should be {kind} and is something else: another program writes to this Redis under the same prefix"
        yield Finding(
            "FUS-417",
            "fail",
            "keys",
            key,
            what,
            f"{look.redis_cli} RENAME {words(key, key + '.other')}\nor give this fleet a prefix of its own (FUSION_PREFIX)",
        )


def _number(value: Any) -> int:
    try:
        return int(value or 0)
    except (TypeError, ValueError):
        return 0
