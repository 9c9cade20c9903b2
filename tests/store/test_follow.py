"""Which jobs join the call of the one before them."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from fusion.store.layout.records import Claimed
from fusion.store.write.broker import Broker
from tests.kit.hands import LEASE, Hand, ids, new, outcome

CALL: dict[str, Any] = {"func": "f", "gather": "10 0", "ties": "m"}


def follow(hand: Hand, leader: Claimed, most: int = 10, token: int = 1) -> tuple[list[str], bool]:
    jobs, more = hand.broker.follow(hand.name, hand.incarnation, token, LEASE, leader, most)
    assert all(job.execution_id == f"{leader.execution_id}.{token}.{i}" for i, job in enumerate(jobs, 1))
    return ids(jobs), more


def put(broker: Broker, *jobs: Any) -> None:
    broker.enqueue("q", [job if not isinstance(job, str) else new(job, **CALL) for job in jobs], "n")


@pytest.mark.parametrize(
    "other",
    [
        {"func": "g"},
        {"gather": "10 1"},
        {"gather": None, "ties": None},
        {"serializer": "pickle"},
        {"suspect": "1"},
        {"status": "unknown"},
    ],
    ids=str,
)
def test_another_job_closes_the_call(broker: Broker, conn: redis.Redis, hand: Hand, other: dict[str, Any]) -> None:
    put(broker, "a", "b", new("other", **{**CALL, **other}), "c")
    if "status" in other:
        conn.hset("rq:job:other", "status", "unknown")
    assert follow(hand, hand.take()) == (["b"], False)
    assert [*conn.zrange("rq:queue:q", 0, -1)] == [b"c", b"other"]


def test_so_does_another_class_and_what_has_no_slot_is_passed_over(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    keyed: dict[str, Any] = {**CALL, "ties": "km", "concurrency_key": "k", "max_concurrent": 1}
    put(broker, "a", new("k1", **keyed), new("k2", **keyed), "b", new("low", 0, **CALL))
    assert follow(hand, hand.take()) == (["k1", "b"], False)
    assert conn.hget("rq:job:k2", "status") == b"blocked"


def test_the_gate_of_the_queue_counts_each(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    broker.set_gate("q", {"limit": 3})
    put(broker, *"abcde")
    first = hand.take()
    assert follow(hand, first) == (["b", "c"], False)
    hand.tell(first)
    assert follow(hand, first, token=2) == (["d"], False)
    broker.pause("q")
    assert follow(hand, first, token=3) == ([], False)


def test_batched_jobs_are_claimed_a_number_at_a_time_and_not_ahead(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, *"abcdef")
    assert hand.turn(slots=[0], ahead=1).jobs == []
    first = hand.take()
    assert follow(hand, first, 2, 1) == (["b", "c"], True)
    assert follow(hand, first, 2, 1) == (["b", "c"], True), "a resend"
    assert ids(hand.turn(slots=[0], token=hand.token).jobs) == ["a"], "a resend of the turn"
    assert follow(hand, first, 9, 2) == (["d", "e", "f"], True)
    assert follow(hand, first, 9, 3) == ([], True)
    _, answers = hand.broker.extend(hand.name, hand.incarnation, [("b", f"{first.execution_id}.1.1")], LEASE, 420, "busy")
    assert answers == ["ok"]
    assert hand.turn(outcome(Claimed("q", "b", f"{first.execution_id}.1.1", {}))).answers == ["ok"]
    other = Hand(broker, "q", name="other.1")
    stale = Claimed("q", "x", first.execution_id, first.fields)
    assert broker.follow(other.name, "gone", 9, LEASE, stale, 9) == ([], False)


def test_a_job_that_would_be_charged_for_a_loss_is_not_batched(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "a", "b")
    first = hand.take()
    conn.hset("rq:job:a", "lost", 2)
    assert follow(hand, first) == ([], False)
    conn.hset("rq:job:a", "on_lost", "again")
    assert follow(hand, first, token=2) == (["b"], True)
