"""What the tests of unique keys share: jobs with a key, who has it, and what must be true of every key at any moment."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import redis

from fusion.exceptions import DuplicateJob
from fusion.store.layout.records import NewJob
from fusion.store.write.broker import Broker
from fusion.store.write.queue_calls import met_in
from tests.kit.hands import Hand, new, outcome
from tests.kit.still import Still

_TERMINAL = (b"finished", b"failed", b"canceled", b"stopped")


def lone(job_id: str, key: str = "k", priority: int = 1, **more: Any) -> NewJob:
    """A job with a unique key."""
    own = {} if more.get("unique_until") == "accept" else {"ties": "u"}
    return new(job_id, priority, **{**own, "unique_key": key, **more})


def offer(broker: Broker, job_id: str, queue: str = "q", **more: Any) -> str | None:
    """Enqueue a job with a key in a call of its own: the id of the job that it met, or None."""
    met = met_in(broker.enqueue(queue, [lone(job_id, **more)], secrets.token_hex(6)))
    return met[job_id].other if met else None


def refused(broker: Broker, job_id: str, **more: Any) -> DuplicateJob | None:
    try:
        offer(broker, job_id, on_duplicate="raise", **more)
    except DuplicateJob as error:
        return error
    return None


def owner(conn: redis.Redis | Still, key: str = "k") -> str | None:
    found = conn.get(f"rq:unique:{key}")
    return None if found is None else found.decode()


def window(conn: redis.Redis, key: str = "k") -> float | None:
    """Seconds for which the key is taken though nobody holds it; None if it is free, or held."""
    left = conn.pttl(f"rq:unique:{key}")
    return left / 1000 if left >= 0 else None


def end_window(conn: redis.Redis, key: str = "k") -> None:
    assert conn.delete(f"rq:unique:{key}") == 1


#: Keys that `flaws` looks at.
SEEN = ("rq:unique*", "rq:job:*")


def flaws(redis_of_test: redis.Redis | Still) -> list[str]:
    """What is wrong with the keys of a Redis in which no job was deleted by hand: each that is held has a job that says so and has not ended, and
    stands in the index; nothing else stands there; and each job that was never taken by a worker, and has not ended, has its key."""
    conn = Still.of(redis_of_test, *SEEN)
    found = []
    indexed = {name.decode() for name in conn.zrange("rq:uniques", 0, -1)}
    for raw in conn.scan_iter("rq:unique:*"):
        key = raw.decode().removeprefix("rq:unique:")
        if conn.pttl(raw) >= 0:
            if key in indexed:
                found.append(f"{key} is in its window, and in the index")
            continue
        job_id = owner(conn, key)
        status, named = conn.hmget(f"rq:job:{job_id}", "status", "unique_key")
        if status is None or status in _TERMINAL or named != key.encode():
            found.append(f"{key} has {job_id}, which is {status!r} and names {named!r}")
        if key not in indexed:
            found.append(f"{key} is held, and not in the index")
        indexed.discard(key)
    found += [f"{key} is in the index, and not held" for key in sorted(indexed)]
    for raw in conn.scan_iter("rq:job:*"):
        if conn.type(raw) != b"hash":
            continue
        status, key, until, ran = conn.hmget(raw, "status", "unique_key", "unique_until", "deliveries")
        if key is None or status in _TERMINAL or until == b"accept" or (until == b"start" and ran):
            continue
        job_id = raw.decode().removeprefix("rq:job:")
        if owner(conn, key.decode()) != job_id:
            found.append(f"{job_id} is {status!r}, and {key!r} is not its own")
    return found


def of_unique(conn: redis.Redis) -> dict[str, Callable[[], Any]]:
    """Calls that have to do with unique keys, for the tests of resends: one job waits, one runs, one has ended."""
    broker = Broker(conn)
    offer(broker, "own1", "alone", key="one")
    hand = Hand(broker, "alone", name="lone.1")
    running = hand.take()
    offer(broker, "own2", "alone", key="two")
    offer(broker, "own3", "alone", key="three")
    broker.cancel("own3")
    offer(broker, "own4", "alone", key="four")
    hand.token += 1
    token = hand.token
    jobs = [lone("own5", "one"), lone("own6", "two", on_duplicate="replace"), lone("own7", "five"), lone("own8", "five")]

    def enqueue() -> Any:
        at = broker.enqueue("alone", jobs, "n")
        return at, {job_id: (met.other, met.skipped, met.status) for job_id, met in met_in(at).items()}

    return {
        "enqueue_unique": enqueue,
        "requeue_unique": lambda: broker.requeue(["own3"], "n"),
        "turn_unique": lambda: hand.turn(outcome(running), slots=[0], queues=["alone"], token=token),
    }
