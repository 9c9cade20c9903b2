"""What the tests of concurrency keys share: jobs with a key, and what must be true of every key at any moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import redis

from fusion.store.layout.records import NewJob
from fusion.store.write.broker import Broker
from fusion.store.write.limit_broker import LimitBroker
from tests.kit.hands import Hand, new, outcome
from tests.kit.still import Still


def tied(job_id: str, key: str = "k", limit: int | None = 1, priority: int = 1, **more: Any) -> NewJob:
    """A job with a concurrency key."""
    named = {} if limit is None else {"max_concurrent": limit}
    return new(job_id, priority, **{"ties": "k", "concurrency_key": key, **named, **more})


def give(broker: Broker, queue: str, *ids: str, **more: Any) -> None:
    """Enqueue jobs with a key, each in a call of its own, under ids made by chance: their records have no nonce."""
    for job_id in ids:
        broker.enqueue(queue, [replace(tied(job_id, **more), nonce=job_id)])


def members(conn: redis.Redis | Still, key: str) -> dict[str, float]:
    return {name.decode(): score for name, score in conn.zrange(key, 0, -1, withscores=True)}


def holders(conn: redis.Redis, key: str = "k") -> list[str]:
    """Those that have a slot, the best first; those that run before all others."""
    return [one.decode() for one in conn.zrevrange(f"rq:limits:held:{key}", 0, -1)]


def waiting(conn: redis.Redis, key: str = "k") -> list[str]:
    """Those that wait for one, the best first."""
    return [one.decode() for one in conn.zrevrange(f"rq:limits:waiting:{key}", 0, -1)]


#: Keys that `faults` looks at.
SEEN = ("rq:limit:*", "rq:limits:*", "rq:job:*", "rq:fifo:*", "rq:queue:*", "rq:blocked:*")


def faults(redis_of_test: redis.Redis | Still, only: str = "") -> list[str]:
    """What is wrong with the slots of any key, or of `only` one. Every job with a key that waits or runs has a slot or is blocked for one; there are
    not more holders than the limit, unless all run; nobody waits who could have a slot, or who has a better place than a holder that waits too."""
    conn = Still.of(redis_of_test, *SEEN)
    found: list[str] = []
    seen: dict[str, str] = {}
    for raw in conn.scan_iter("rq:limit:*"):
        key = raw.decode().removeprefix("rq:limit:")
        if only not in ("", key):
            continue
        hash_of = {name.decode(): value.decode() for name, value in conn.hgetall(raw).items()}
        limit = int(hash_of.get("pinned") or hash_of.get("max") or 1)
        held, lined = members(conn, f"rq:limits:held:{key}"), members(conn, f"rq:limits:waiting:{key}")
        idle = {one: score for one, score in held.items() if score != float("inf")}
        if len(held) > limit and idle:
            found.append(f"{key}: {len(held)} holders of {limit} slots, and {sorted(idle)} have not started")
        bound = {"rate", "pinned_rate", "paused", "held_back"} & hash_of.keys()
        if lined and len(held) < limit and not bound:
            found.append(f"{key}: {sorted(lined)} wait, and {limit - len(held)} slots are free")
        if lined and idle and max(lined.values()) > min(idle.values()):
            found.append(f"{key}: somebody waits who is better than a holder that has not started")
        seen |= dict.fromkeys(held, f"held {key}") | dict.fromkeys(lined, f"waits {key}")
        for job_id, score in held.items():
            status = conn.hget(f"rq:job:{job_id}", "status")
            waits_in = (conn.hget(f"rq:job:{job_id}", "waits_in") or b"").partition(b":")[0] if status == b"blocked" else b""
            kept = waits_in == b"held" and conn.zscore("rq:limits:due", f"{key} {job_id} held") is not None
            if (
                not kept
                and waits_in != b"probation"
                and status not in ((b"started", b"scheduled") if score == float("inf") else (b"queued",))
            ):
                found.append(f"{key}: {job_id} is {status!r} and holds a slot by {score}")
    for raw in conn.scan_iter("rq:job:*"):
        if conn.type(raw) != b"hash" or b"k" not in (conn.hget(raw, "ties") or b""):
            continue
        job_id = raw.decode().removeprefix("rq:job:")
        status, key, queue, waits = conn.hmget(raw, "status", "concurrency_key", "origin", "waits_in")
        if key is None:
            continue
        if status == b"queued" and queue == b"scheduler" and conn.zscore("rq:fifo:scheduler", job_id) is None:
            continue  # in the inbox: it has not arrived
        key, place = key.decode(), seen.pop(job_id, "")
        if only not in ("", key):
            continue
        execution, follows = conn.hmget(raw, "execution_id", "follows")
        if status == b"started" and not place and (follows or b"").partition(b" ")[0] == execution:
            continue  # behind another in its process, in whose slot it runs; or it goes back unbegun
        if status in (b"queued", b"started") and place != f"held {key}":
            found.append(f"{job_id} is {status.decode()}, and not among the holders of {key}: {place!r}")
        blocked = status == b"blocked" and waits == f"limit:{key}".encode()
        if blocked != (place == f"waits {key}"):
            found.append(f"{job_id} is {status!r}, waits in {waits!r}, and is in {place!r}")
        if blocked and conn.zscore(f"rq:blocked:{queue.decode()}", job_id) != float("inf"):
            found.append(f"{job_id} is blocked, and not among its queue's")
        if place and status not in (b"queued", b"started", b"scheduled", b"blocked"):
            found.append(f"{job_id} is {status!r}, and in {place}")
        if status == b"queued" and all(
            conn.zscore(f"rq:{kind}:{queue.decode()}", job_id) is None
            for kind in (("fifo",) if queue == b"scheduler" else ("queue", "fifo"))
        ):
            found.append(f"{job_id} is queued, and not in its queue")
    return found + [f"{job_id} is gone, and {place}" for job_id, place in seen.items()]


def of_limits(conn: redis.Redis) -> dict[str, Callable[[], Any]]:
    """Calls that have to do with keys, for the tests of resends: of a key with one slot one job runs and two wait, another has a rate. The run
    has the lock `mine`, and a run of another queue has `theirs`."""
    broker, limits = Broker(conn), LimitBroker(conn)
    give(broker, "limited", "tied1", "tied2", "tied3")
    give(broker, "rated", "rated1", "rated2", key="r", limit=None, rate="1/60000/1")
    hand = Hand(broker, "limited", "rated", name="tied.1")
    (running,) = hand.claim(1, ["limited"])
    broker.enqueue("locking", [new("locker")], "n-locker")
    other = Hand(broker, "locking", name="locker.1").take()
    assert int(broker.lock("mine", "tied1", running.execution_id, "c"))
    assert int(broker.lock("theirs", "locker", other.execution_id, "c"))
    hand.token += 1
    token = hand.token

    def turn(kind: str) -> Any:
        return hand.turn(outcome(running, kind, reason="r"), slots=[0, 0], queues=["limited"], token=token)

    def release() -> None:
        limits.release_slot("k", "tied1")  # the second time it has none

    def unlock() -> None:
        broker.unlock("mine", "tied1", running.execution_id, "c")

    return {
        "lock": lambda: broker.lock("free", "tied1", running.execution_id, "c"),
        "lock_waits": lambda: broker.lock("theirs", "tied1", running.execution_id, "c"),
        "unlock": unlock,
        "set_limit": lambda: limits.pin_limit("k", 2).key,
        "release_slot": release,
        "enqueue_tied": lambda: broker.enqueue("limited", [tied("tied4"), tied("tied5", ties="kd", on_conflict="discard")], "n"),
        "turn_tied": lambda: turn("finished"),
        "turn_tied_released": lambda: turn("release"),
        "turn_rated": lambda: hand.turn(slots=[0, 0], queues=["rated"], token=token),
    }
