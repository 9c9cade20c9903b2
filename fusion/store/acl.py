"""What an ACL user of Redis must be allowed for Fusion to work; docs/operations.md, "Least privilege"."""

from __future__ import annotations

from fusion import defaults

#: Rules for `ACL SETUSER`, to follow the user's name and password. One line, in this order: later rules override earlier ones.
RULES = (
    "resetkeys resetchannels -@all ~{prefix}* &{prefix}* +@read +@write -@dangerous"
    " +eval +evalsha +time +info +ping +select +subscribe +publish +wait"
)
#: For programs that only enqueue jobs, and look at those whose ids they know.
PRODUCER_RULES = (
    "resetkeys resetchannels -@all ~{prefix}job:* ~{prefix}queue:* ~{prefix}fifo:* ~{prefix}finished:* ~{prefix}canceled:*"
    " ~{prefix}stopped:* ~{prefix}scheduler:scheduled_jobs ~{prefix}queues ~{prefix}fifos ~{prefix}seq ~{prefix}seq:front"
    " ~{prefix}wake:* ~{prefix}paused:*"
    " ~{prefix}suspended ~{prefix}events ~{prefix}events:meta ~{prefix}schema ~{prefix}wildcards ~{prefix}work:*"
    " +eval +evalsha +time +ping +select +wait +del +exists +persist +pexpire +pttl +hdel +hget +hgetall +hincrby +hmget +hset +incr +incrby"
    " +llen +rpush +sadd +sismember +type +xadd +zadd +zcard +zcount +zrange +zrem +zrevrank +zscore"
)


def acl_rules(prefix: str = defaults.KEY_PREFIX) -> str:
    """The least that producers, workers and the command line need for keys under `prefix`."""
    return RULES.format(prefix=prefix)


def producer_rules(prefix: str = defaults.KEY_PREFIX) -> str:
    """The least that `Queue.enqueue...`, `Job.fetch`, `get_status`, `wait`, `result` and `get_position` need."""
    return PRODUCER_RULES.format(prefix=prefix)
