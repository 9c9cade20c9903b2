"""What the tests of batches share: batches with jobs in them, and what must be true of every batch at any moment."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import redis

from fusion.store.layout.records import NewJob
from fusion.store.write.broker import Broker
from tests.kit.hands import new
from tests.kit.still import Still

HOUR, DAY = 3600.0, 86400.0
_TERMINAL = {"finished", "failed", "canceled", "stopped"}
OUTCOMES = ("failed", "canceled", "stopped", "deleted")


def begin(broker: Broker, batch: str, parent: str = "", *, open_for: float = HOUR, keep: float = DAY, **fields: Any) -> str:
    """Open a batch; the answer."""
    return broker.open_batch(batch, secrets.token_hex(6), open_for, keep, fields, parent=parent)[0]


def of_batch(batch: str, job_id: str, by: str | None = None, **more: Any) -> NewJob:
    """A job that joins a batch."""
    return new(job_id, ties="b", batch=batch, batch_by=by, **more)


def add(broker: Broker, batch: str, *ids: str, queue: str = "q", by: str | None = None, **more: Any) -> None:
    """Enqueue jobs of a batch in one call."""
    broker.enqueue(queue, [of_batch(batch, one, by, **more) for one in ids], secrets.token_hex(6))


def callback(broker: Broker, batch: str, when: str, job_id: str, queue: str = "back", **more: Any) -> None:
    """Enqueue what is to follow from the end of a batch that was opened with its id."""
    broker.enqueue(queue, [new(job_id, ties="bh", batch=batch, batch_as=when, **more)], secrets.token_hex(6))


def batch_of(conn: redis.Redis | Still, batch: str) -> dict[str, str]:
    """The hash of a batch, and what is counted by looking: all its `members`, those `open`, and those that `finished`."""
    fields = {name.decode(): value.decode() for name, value in conn.hgetall(f"rq:batch:{batch}").items()}
    members, left = conn.zcard(f"rq:batch:{batch}:members"), conn.scard(f"rq:batch:{batch}:open")
    otherwise = conn.hlen(f"rq:batch:{batch}:ended")
    return {**fields, "members": str(members), "open": str(left), "finished": str(members - left - otherwise)}


def counts(conn: redis.Redis, batch: str) -> dict[str, int]:
    """What a batch counts, as far as it is not 0."""
    found = batch_of(conn, batch)
    return {name: int(found[name]) for name in ("members", "open", "finished", *OUTCOMES) if int(found.get(name, 0))}


#: Keys that `batch_faults` looks at.
SEEN = ("rq:batch:*", "rq:batches", "rq:batches:due", "rq:job:*")


def batch_faults(redis_of_test: redis.Redis | Still) -> list[str]:
    """What is wrong with any batch: each member that has not ended is open, and no other; each that ended otherwise than finished is among those
    that did, as what it is; the counters say the same; it is over if it is closed and nothing is open, and then it has ended; what it is a
    member of knows the same of it; what is to be done with it is due."""
    conn = Still.of(redis_of_test, *SEEN)
    wrong: list[str] = []
    for raw in conn.scan_iter("rq:batch:*"):
        name = raw.decode().removeprefix("rq:batch:")
        if name.count(":"):
            if not conn.exists(f"rq:batch:{name.split(':')[0]}"):
                wrong.append(f"{name} is left over")
            continue
        found = batch_of(conn, name)
        members = {one.decode() for one in conn.zrange(f"rq:batch:{name}:members", 0, -1)}
        left = {one.decode() for one in conn.smembers(f"rq:batch:{name}:open")}
        ended = {one.decode(): how.decode() for one, how in conn.hgetall(f"rq:batch:{name}:ended").items()}
        if not left <= members or not ended.keys() <= members or left & ended.keys():
            wrong.append(f"{name}: {members=} {left=} {ended=}")
        told = {how: int(found.get(how, 0)) for how in OUTCOMES}
        if told != {how: sum(one == how for one in ended.values()) for how in OUTCOMES}:
            wrong.append(f"{name}: counts {told}, and {ended=}")
        for member in members:
            if member.startswith("#"):
                over, around = conn.hmget(f"rq:batch:{member[1:]}", "over", "parent")
                own_life = (
                    conn.exists(f"rq:batch:{member[1:]}") and around == name.encode()
                )  # else another was opened under its id
                if own_life and (over is None) != (member in left):
                    wrong.append(f"{name}: {member} is over={over} and open={member in left}")
                continue
            status, own = (value and value.decode() for value in conn.hmget(f"rq:job:{member}", "status", "batch"))
            if status is not None and own != name:  # another life; this one has ended
                if member in left:
                    wrong.append(f"{name}: {member} is open, and there it is one of {own}")
                continue
            if (status is not None and status not in _TERMINAL) != (member in left):
                wrong.append(f"{name}: {member} is {status} and open={member in left}")
            counted = ended.get(member, "finished")
            if member not in left and status and counted not in (status, "deleted"):
                wrong.append(f"{name}: {member} is {status} and counts as {counted}")
        over = "closed_at" in found and not left
        if "cancel" in found:
            over = "over" in found  # it is looked at when that is done
        if over != ("over" in found) or (over and "ended_at" not in found):
            wrong.append(f"{name}: {over=} {found=}")
        if over and not ended and "success_at" not in found:
            wrong.append(f"{name}: all its members finished, and nobody was told: {found=}")
        due = conn.zscore("rq:batches:due", name)
        to_do = "cancel" in found or found.get("read", "end") != "end"
        if (due is not None) != (over or "closed_at" not in found or to_do):
            wrong.append(f"{name}: due at {due}: {found=}")
        if conn.zscore("rq:batches", name) is None:
            wrong.append(f"{name} is not listed")
    return wrong


def of_batches(conn: redis.Redis) -> dict[str, Callable[[], Any]]:
    """Calls that have to do with batches, for the tests of resends."""
    broker = Broker(conn)
    for batch in ("open", "empty", "wanted"):
        begin(broker, batch)
    begin(broker, "inner", "wanted")
    add(broker, "open", "m1")
    add(broker, "wanted", "m2", "m3", queue="batched")
    begin(broker, "gone", open_for=-1)

    def cancel() -> list[str]:
        return broker.cancel_batch("wanted")[4] and []

    def tend() -> None:
        broker.tend_batches()

    return {
        "open_batch": lambda: broker.open_batch("new", "nonce", HOUR, DAY, {"name": "n"}, parent="open"),
        "close_batch": lambda: broker.close_batch("open"),
        "close_batch_empty": lambda: broker.close_batch("inner"),
        "enqueue_batch": lambda: broker.enqueue("batched", [of_batch("wanted", "m4"), of_batch("empty", "m5")], "nonce"),
        "cancel_batch": cancel,
        "tend_batches": tend,
    }
