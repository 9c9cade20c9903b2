"""A lower class whose oldest job has waited longer than it may is next, at every tenth claim."""

from __future__ import annotations

import redis

from fusion.store.layout.records import Claimed
from fusion.store.write.broker import Broker
from tests.kit.hands import Hand, ids, put
from tests.store.test_queue_gates import hands


def _aged(conn: redis.Redis, *job_ids: str) -> None:
    for job_id in job_ids:
        conn.hset(f"rq:job:{job_id}", "enqueued_at", "2020-01-01T00:00:00.000000Z")


def _claimed(hand: Hand, count: int) -> list[Claimed]:
    return [hand.take() for _ in range(count)]


def test_every_tenth_claim_looks_for_who_has_waited_too_long(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"max_wait": 60_000})
    put(broker, "q", *(f"h{i}" for i in range(40)), priority=2)
    put(broker, "q", "low1", "low2", "low3", priority=0)
    put(broker, "q", "mid", priority=1)
    _aged(conn, "low1", "low2")
    one, two = hands(broker, 2, "q")
    order = ids(job for _ in range(10) for job in (one.take(), two.take()))
    assert [i for i, job_id in enumerate(order, 1) if not job_id.startswith("h")] == [10, 20]
    assert [job_id for job_id in order if not job_id.startswith("h")] == ["low1", "low2"]
    assert all(job_id.startswith("h") for job_id in ids(_claimed(one, 20))), "the third has not waited long enough"


def test_many_at_once_are_counted_one_by_one(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"max_wait": 60_000})
    put(broker, "q", *(f"h{i}" for i in range(40)), priority=2)
    put(broker, "q", "low1", "low2", priority=0)
    _aged(conn, "low1", "low2")
    order = ids(Hand(broker, "q").claim(25))
    assert (order.index("low1"), order.index("low2")) == (9, 19)
    assert len(set(order)) == 25


def test_a_slot_with_a_floor_takes_no_lower_class(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"max_wait": 1})
    put(broker, "q", *(f"h{i}" for i in range(40)), priority=2)
    put(broker, "q", "low", priority=0)
    _aged(conn, "low")
    hand = Hand(broker, "q")
    assert "low" not in ids(hand.turn(slots=[1] * 20).jobs)
    assert "low" in ids(hand.turn(slots=[0] * 10).jobs)


def test_a_queue_of_lower_jobs_beside_an_endless_one(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("low", {"max_wait": 1})
    put(broker, "high", *(f"h{i}" for i in range(40)), priority=2)
    put(broker, "low", "low1", "low2", priority=1)
    _aged(conn, "low1", "low2")
    order = ids(_claimed(Hand(broker, "high", "low"), 20))
    assert (order.index("low1"), order.index("low2")) == (9, 19)


def test_three_lower_classes_are_looked_at(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"max_wait": 60_000})
    put(broker, "q", *(f"h{i}" for i in range(60)), priority=9)
    for priority in (8, 7, 6, 5):
        put(broker, "q", f"p{priority}", priority=priority)
    _aged(conn, "p5")
    hand = Hand(broker, "q")
    assert "p5" not in ids(hand.claim(20))
    _aged(conn, "p6")
    assert "p6" in ids(hand.claim(10))
