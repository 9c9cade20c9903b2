"""The rights that an ACL user of Redis needs for Fusion to work; docs/operations.md, "Least privilege"."""

from __future__ import annotations

from fusion.kernel import defaults
from fusion.store.layout.slots import tag_of

#: Rules for `ACL SETUSER`, to follow the user's name and password. One line, in this order: later rules override earlier ones. Commands
#: that name no key, which no pattern of keys restrains, are left out one by one: functions, and what tells of others' keys. `keys`: which keys.
RULES = (
    "resetkeys resetchannels -@all {keys} &{prefix}* +@read +@write -@dangerous -@scripting -scan -randomkey -dbsize"
    " +eval +evalsha +time +info +ping +select +subscribe +publish +wait{cluster}{audit}"
)
#: Whatever is under the prefix; and, where a server can say so, all but the audit, which can be read and appended to. No other key of Fusion's
#: begins with an `a`.
_ALL, _ALL_BUT_AUDIT, _AUDIT = "~{prefix}*", "~{prefix}[^a]* %R~{prefix}audit", " (~{prefix}audit +xadd)"
#: For programs that only enqueue jobs, and look at those whose ids they know. `[^_]`: no queue of Fusion's own; of jobs' ids none that begins
#: with `cb-`: who can write a callback's delivery has the courier sign it.
_PRODUCER = (
    "resetkeys resetchannels -@all ~{prefix}job:[^c]* ~{prefix}job:c ~{prefix}job:c[^b]* ~{prefix}job:cb ~{prefix}job:cb[^-]*"
    " ~{prefix}queue:[^_]* ~{prefix}fifo:[^_]* ~{prefix}fair:[^_]* ~{prefix}finished:[^_]* ~{prefix}canceled:[^_]* ~{prefix}stopped:[^_]*"
    " ~{prefix}scheduler:scheduled_jobs ~{prefix}expiring ~{prefix}queues ~{prefix}fifos ~{prefix}seq ~{prefix}seq:front ~{prefix}wake:[^_]*"
    " ~{prefix}wake:_scheduler ~{prefix}work:* ~{prefix}totals:[^_]* ~{prefix}blocked:[^_]* ~{prefix}limit:* ~{prefix}limits ~{prefix}limits:*"
    " ~{prefix}uniques ~{prefix}deferred:[^_]* ~{prefix}releasing ~{prefix}pinned ~{prefix}graph:* ~{prefix}graphs"
    " ~{prefix}batch:* ~{prefix}batches ~{prefix}batches:due ~{prefix}failures ~{prefix}failures:empty ~{prefix}failure:*"
    " ~{prefix}events ~{prefix}events:meta ~{prefix}outbox:*"
)
_PRODUCERS_COMMANDS = (
    " +eval +evalsha +time +ping +select +wait +exists +hdel +hget +hgetall +hincrby +hkeys +hmget +hset +incr +incrby"
    " +llen +rpush +sadd +sismember +smembers +srem +type +xadd +zadd +zcard +zcount +zincrby +zrange +zrem +zrevrank +zscan +zscore"
)
#: Keys that it only has to read; on 6.2 there is no way to say so.
_READ = ("paused:*", "inbox:*", "gates", "suspended", "schema", "wildcards")
#: Commands of an enqueue that is sent again, on the job's own record, and of one with parents, on the set of their children: a large set of
#: stock RQ's is read in part. Without a selector they are allowed on any of the keys.
_AGAIN = "+pexpire +persist +pttl +scard +sscan"
#: What it does to unique keys.
_UNIQUE = "+get +set +pexpire +pttl"
#: What closing a batch, and looking how far it is, takes besides.
_BATCHES = "+hlen +scard +smismember"

#: What finding the node that serves the slot takes on a cluster.
_CLUSTER = " +cluster|slots +cluster|myid"


def acl_rules(prefix: str = defaults.KEY_PREFIX, *, server: int = 7) -> str:
    """The least that producers, workers and the command line need for keys under `prefix`. `server`: its major version, 7 for Valkey."""
    keys, audit = (_ALL_BUT_AUDIT, _AUDIT) if server >= 7 else (_ALL, "")
    cluster = (_CLUSTER + (" +ssubscribe +spublish" if server >= 7 else "")) if tag_of(prefix) else ""
    return RULES.format(prefix=prefix, keys=keys.format(prefix=prefix), cluster=cluster, audit=audit.format(prefix=prefix))


def producer_rules(prefix: str = defaults.KEY_PREFIX, *, server: int = 7) -> str:
    """The least that `Queue.enqueue...`, `Job.fetch`, `get_status`, `wait`, `tree`, `result` and `get_position` need. `server`: its major version,
    7 for Valkey."""
    keys = _PRODUCER.format(prefix=prefix)
    sign = "%R~" if server >= 7 else "~"
    read = "".join(f" {sign}{prefix}{key}" for key in _READ)
    commands = _PRODUCERS_COMMANDS + (_CLUSTER if tag_of(prefix) else "")
    if server >= 7:
        own = f"(~{prefix}job:* {_AGAIN}) (~{prefix}unique:* {_UNIQUE}) (~{prefix}batch:* {_BATCHES})"
        return f"{keys}{read}{commands} {own}"
    return f"{keys} ~{prefix}unique:*{read}{commands} {_AGAIN} +get +set {_BATCHES}"
