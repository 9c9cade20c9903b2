"""Batches of an outbox: each number is accepted once, for ever, and in order; what is refused leaves its number free."""

from __future__ import annotations

import pytest
import redis

from fusion.exceptions import DuplicateJob, QueueFull
from fusion.store.layout.records import Marked, OutboxBatch, Room
from fusion.store.write.broker import Broker
from tests.kit.hands import Hand, new, put
from tests.store.kin_hands import child


@pytest.fixture
def broker(conn: redis.Redis) -> Broker:
    return Broker(conn)


def waiting(conn: redis.Redis) -> list[str]:
    return [job.decode() for job in conn.zrevrange("rq:queue:q", 0, -1)]


def batch(number: int, before: int | None = None, stamp: str = "aa.1", outbox: str = "0f") -> OutboxBatch:
    return OutboxBatch(outbox, number, number - 1 if before is None else before, stamp)


def test_a_number_is_accepted_once_though_its_jobs_are_long_forgotten(conn: redis.Redis, broker: Broker) -> None:
    assert broker.enqueue_rows("q", [new("a"), new("b")], batch(1)) == Marked("ok", 1, "aa.1")
    hand = Hand(broker, "q")
    hand.tell(hand.take())
    hand.tell(hand.take())
    conn.delete("rq:job:a", "rq:job:b")
    assert broker.enqueue_rows("q", [new("a"), new("b")], batch(1)) == Marked("done", 1, "aa.1")
    assert broker.enqueue_rows("q", [new("c")], batch(2, stamp="bb.1")) == Marked("ok", 2, "bb.1")
    assert broker.enqueue_rows("q", [new("a")], batch(1)) == Marked("done", 2, "bb.1")
    assert not conn.exists("rq:job:a")
    assert broker.outbox_marks("0f") == {"q": Marked("done", 2, "bb.1")}
    assert conn.ttl("rq:outbox:0f") == -1


def test_queues_and_outboxes_have_numbers_of_their_own(conn: redis.Redis, broker: Broker) -> None:
    for queue, outbox in (("q", "0f"), ("r", "0f"), ("q", "1e")):
        assert broker.enqueue_rows(queue, [new(f"{queue}{outbox}")], batch(1, outbox=outbox)).kind == "ok"
    assert waiting(conn) == ["q0f", "q1e"]


def test_a_number_that_does_not_follow_is_a_gap_and_nothing_is_accepted(conn: redis.Redis, broker: Broker) -> None:
    assert broker.enqueue_rows("q", [new("a")], batch(5)) == Marked("gap", 0, "")
    broker.enqueue_rows("q", [new("a")], batch(5, before=0))
    assert broker.enqueue_rows("q", [new("b")], batch(7)) == Marked("gap", 5, "aa.1")
    assert waiting(conn) == ["a"]
    assert broker.enqueue_rows("q", [new("b")], batch(7, before=5)).kind == "ok"


def test_a_refused_row_leaves_its_number_free(conn: redis.Redis, broker: Broker) -> None:
    put(broker, "q", "a")
    with pytest.raises(DuplicateJob):
        broker.enqueue_rows("q", [new("b"), new("a")], batch(1))
    with pytest.raises(QueueFull):
        broker.enqueue_rows("q", [new("b"), new("c")], batch(1), room=Room(2))
    assert not conn.exists("rq:outbox:0f")
    assert broker.enqueue_rows("q", [new("b")], batch(1, stamp="aa.3")) == Marked("ok", 1, "aa.3")
    # the one that was refused comes late
    assert broker.enqueue_rows("q", [new("b"), new("z")], batch(1)) == Marked("done", 1, "aa.3")
    assert waiting(conn) == ["a", "b"]


def test_a_number_without_jobs_is_closed(conn: redis.Redis, broker: Broker) -> None:
    assert broker.enqueue_rows("q", [], batch(1)).kind == "ok"
    assert broker.enqueue_rows("q", [new("a")], batch(1)).kind == "done"
    assert not conn.exists("rq:queue:q")


def test_jobs_with_ties_of_all_kinds_have_a_number(broker: Broker) -> None:
    broker.enqueue_rows("q", [new("p")], batch(1))
    jobs = [child("a", "p"), new("b", unique_key="u", unique_until="end"), new("c", fair_key="uuu")]
    broker.enqueue_rows("q", jobs, batch(2))
    assert broker.outbox_marks("0f")["q"].number == 2
