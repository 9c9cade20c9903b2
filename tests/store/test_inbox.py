"""The LIST queue `scheduler`: outsiders RPUSH ids to it, and it is served in exactly that order."""

from __future__ import annotations

import pytest
import redis

from fusion.store.read.inspector import Inspector
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import DATA, Hand, drain, everything, fields_of, ids, outcome, put, status_of

INBOX = "rq:queue:scheduler"


def _push(conn: redis.Redis, *job_ids: str, **fields: str) -> None:
    """What another program does: write a hash, push the id."""
    for job_id in job_ids:
        conn.hset(f"rq:job:{job_id}", mapping={"data": DATA, **fields})
        conn.rpush(INBOX, job_id)


@pytest.fixture
def hand(broker: Broker) -> Hand:
    return Hand(broker, "scheduler", "q")


def test_first_in_first_out_among_outsiders_and_our_own(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    arrived = []
    for i in range(120):
        arrived.append(f"j{999 - i}")
        if i % 3:
            _push(conn, arrived[-1])
        else:
            put(broker, "scheduler", arrived[-1], priority=i % 2 * 2)
    assert ids(hand.claim(5)) == arrived[:5]
    put(broker, "scheduler", "last-but-one")
    _push(conn, "last", status="queued", origin="scheduler")
    assert drain(hand, 7) == [*arrived[5:], "last-but-one", "last"]
    assert set(check_conservation(conn, [*arrived, "last", "last-but-one"]).values()) == {"started"}


def test_depth_is_inbox_and_what_was_taken_over(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    inspector = Inspector(conn)
    _push(conn, *(f"j{i:02d}" for i in range(30)))
    assert (inspector.count("scheduler"), inspector.queues(["scheduler"])[0].inbox) == (30, 30)
    hand.take()
    (info,) = inspector.queues(["scheduler"])
    assert (info.count, info.inbox, info.moderate, info.started) == (29, 10, 19, 1)
    assert inspector.waiting("scheduler", 0, -1) == [f"j{i:02d}" for i in range(1, 30)]
    assert inspector.waiting("scheduler", 17, 4) == ["j18", "j19", "j20", "j21"]
    assert inspector.waiting("scheduler", 25, 100) == ["j26", "j27", "j28", "j29"]


def test_at_front(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "scheduler", "a", "b")
    put(broker, "scheduler", "urgent", front=True)
    assert drain(hand, 1) == ["urgent", "a", "b"]


def test_it_takes_turns_with_other_queues_as_moderate(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    _push(conn, "s1", "s2", priority="0")
    put(broker, "q", "m1", "m2")
    put(broker, "q", "high", priority=2)
    put(broker, "q", "low", priority=0)
    assert ids(hand.claim(6)) == ["high", "s1", "m1", "s2", "m2", "low"]


def test_a_released_job_keeps_its_place(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    _push(conn, "a", "b", "c")
    claimed = hand.take()
    assert hand.tell(claimed, "release", reason="r") == "ok"
    assert conn.zscore("rq:fifo:scheduler", "a") is not None
    assert drain(hand, 1) == ["a", "b", "c"]


def test_a_requeued_job_comes_behind_what_is_in_the_inbox_unless_it_keeps_its_place(
    broker: Broker, conn: redis.Redis, hand: Hand
) -> None:
    """Back to where it came from, whatever the type of that key."""
    _push(conn, "a", "b")
    for claimed in hand.claim(2):
        hand.tell(claimed, "failed", reason="r")
    _push(conn, "c")
    assert broker.requeue(["a"], "n1") == ["ok"]
    assert broker.requeue(["b"], "n2", keep_place=True) == ["ok"]
    assert check_conservation(conn, ["a", "b"]) == {"a": "queued", "b": "queued"}
    assert drain(hand, 1) == ["b", "c", "a"]


def test_garbage_in_the_inbox(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    conn.rpush(INBOX, b"\xff\x00", "unknown-id", "x" * 5000, "good:dependents", "")
    conn.sadd("rq:job:good:dependents", "child")
    _push(conn, "good")
    assert ids(hand.claim(2)) == ["good"]
    assert conn.llen(INBOX) == 0
    failed = [member.decode() for member in conn.zrange("rq:queue:failed", 0, -1)]
    assert len(failed) == 5
    assert "unknown-id" in failed
    assert {len(conn.hget(f"rq:job:{job_id}", "raw_id")) for job_id in failed} == {0, 2, 10, 15, 1024}
    assert all(fields_of(conn, job_id)["reason"].startswith("corrupt: the inbox names") for job_id in failed)
    assert set(check_conservation(conn, failed).values()) == {"failed"}


def test_more_garbage_than_one_call_looks_at(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    conn.rpush(INBOX, *(f"unknown-{i}" for i in range(45)))
    _push(conn, "good")
    answers = [hand.turn(slots=[0]) for _ in range(3)]
    assert [(a.again, ids(a.jobs)) for a in answers] == [(True, []), (True, []), (False, ["good"])]


def test_an_id_pushed_twice_runs_once(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    _push(conn, "a", "b")
    conn.rpush(INBOX, "a")
    assert drain(hand, 1) == ["a", "b"]
    conn.rpush(INBOX, "a")
    assert hand.claim() == [], "it runs already"
    assert check_conservation(conn, ["a"]) == {"a": "started"}


def test_an_id_that_waits_in_another_queue_stays_there(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", priority=0)
    conn.rpush(INBOX, "a")
    claimed = hand.take()
    assert (claimed.id, claimed.queue) == ("a", "q")
    assert check_conservation(conn, ["a"]) == {"a": "started"}


@pytest.mark.parametrize("how", ["canceled", "deleted"])
def test_a_job_canceled_in_the_inbox_does_not_run(broker: Broker, conn: redis.Redis, hand: Hand, how: str) -> None:
    put(broker, "scheduler", "a", "b")
    if how == "canceled":
        assert broker.cancel("a") == "canceled"
    else:
        assert broker.delete(["a"]) == ["deleted"]
    assert drain(hand) == ["b"]
    assert status_of(conn, "a") == ("canceled" if how == "canceled" else None)
    assert conn.zcard("rq:queue:failed") == 0


def test_a_canceled_job_that_is_requeued_while_its_id_is_still_in_the_inbox_runs_once(
    broker: Broker, conn: redis.Redis, hand: Hand
) -> None:
    put(broker, "scheduler", "a", "b")
    broker.cancel("a")
    broker.requeue(["a"], "n")
    assert sorted(drain(hand)) == ["a", "b"]


def test_an_inbox_of_another_type_stops_its_queue_only(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    conn.zadd(INBOX, {"a": 1})
    put(broker, "q", "m1")
    answer = hand.turn(slots=[0, 0])
    assert ids(answer.jobs) == ["m1"]
    assert [(queue, "WRONGTYPE" in error) for queue, error in answer.bad] == [("scheduler", True)]
    assert conn.zcard(INBOX) == 1


def test_emptying_takes_both(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    _push(conn, *(f"j{i}" for i in range(30)))
    running = hand.take()
    again, deleted = True, 0
    while again:
        count, again = broker.empty("scheduler", 8)
        deleted += count
    assert deleted == 29
    assert not conn.exists(INBOX, "rq:fifo:scheduler")
    assert hand.turn(outcome(running)).answers == ["ok"]
    assert "rq:job:j5" not in everything(conn)
