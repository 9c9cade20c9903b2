"""Batches as the scripts keep them: who is open, what is counted, when they are over, and what is left of them."""

from __future__ import annotations

import pytest
import redis

from fusion import Batch
from fusion.exceptions import BatchClosed, NoSuchBatchError
from fusion.store.write.broker import Broker
from tests.kit.hands import Hand, may_reap, new, over, promote_all, put, status_of
from tests.store.batch_hands import add, batch_faults, batch_of, begin, counts, of_batch


@pytest.fixture
def hand(broker: Broker, conn: redis.Redis) -> Hand:
    may_reap(conn)
    return Hand(broker, "q", "p")


def test_a_batch_is_over_when_it_is_closed_and_its_last_job_has_ended(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    assert begin(broker, "b", name="mails") == "ok"
    add(broker, "b", "a1", "a2")
    add(broker, "b", "a3", queue="p")
    put(broker, "q", "other")
    assert counts(conn, "b") == {"members": 3, "open": 3}
    for claimed in hand.claim(2, ["q"]):
        hand.tell(claimed)
    assert counts(conn, "b") == {"members": 3, "open": 1, "finished": 2}
    hand.tell(hand.take("p"), "failed", reason="r")
    assert counts(conn, "b") == {"members": 3, "finished": 2, "failed": 1}
    assert "ended_at" not in batch_of(conn, "b"), "its producer may have more"
    assert broker.close_batch("b") == "ok"
    found = batch_of(conn, "b")
    assert found["over"] == "1" and found["ended_at"] and "success_at" not in found and found["name"] == "mails"
    assert batch_faults(conn) == []


def test_a_batch_without_a_job_is_over_when_it_is_closed(conn: redis.Redis, broker: Broker) -> None:
    begin(broker, "b")
    assert broker.close_batch("b") == "ok"
    assert {"ended_at", "success_at", "over"} <= batch_of(conn, "b").keys()
    assert broker.close_batch("nobody") == "missing"


@pytest.mark.parametrize("how", ["finished", "failed", "canceled", "deleted", "emptied", "expired", "corrupt", "retried", "lost"])
def test_a_member_leaves_by_whatever_way_it_ends(conn: redis.Redis, broker: Broker, hand: Hand, how: str) -> None:
    begin(broker, "b")
    add(broker, "b", "a", ttl=60, on_lost="fail" if how == "lost" else None)
    broker.close_batch("b")
    if how in ("finished", "failed"):
        hand.tell(hand.take(), how, reason="r")
    elif how == "retried":
        hand.tell(hand.take(), "retry", reason="r", delay=5)
        assert counts(conn, "b") == {"members": 1, "open": 1}
        promote_all(broker, conn)
        hand.tell(hand.take())
    elif how == "lost":
        hand.tell(hand.take(), "lost", reason="r")
    elif how == "canceled":
        assert broker.cancel("a") == "canceled"
    elif how == "deleted":
        assert broker.delete(["a"]) == ["deleted"]
    elif how == "emptied":
        assert broker.empty("q") == (1, False)
    elif how == "expired":
        over(conn, "a")
        broker.expire()
    elif how == "corrupt":
        conn.hdel("rq:job:a", "data")
        hand.claim()
    ended = {"retried": "finished", "lost": "failed", "emptied": "deleted", "expired": "canceled", "corrupt": "failed"}.get(
        how, how
    )
    assert counts(conn, "b") == {"members": 1, ended: 1}
    assert batch_of(conn, "b")["over"] == "1"
    assert batch_faults(conn) == []


def test_a_requeued_job_opens_its_batch_again_and_success_follows_once(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    begin(broker, "b")
    add(broker, "b", "a1", "a2")
    broker.close_batch("b")
    one, two = hand.claim(2)
    hand.tell(one)
    hand.tell(two, "failed", reason="r")
    first = batch_of(conn, "b")
    assert broker.requeue(["a2"], "n1") == ["ok"]
    assert broker.requeue(["a2"], "n1") == ["ok"]
    assert counts(conn, "b") == {"members": 2, "open": 1, "finished": 1}
    assert "over" not in batch_of(conn, "b") and batch_faults(conn) == []
    hand.tell(hand.take())
    found = batch_of(conn, "b")
    assert (found["ended_at"], found["over"]) == (first["ended_at"], "1")
    assert found["success_at"] and counts(conn, "b") == {"members": 2, "finished": 2}
    assert batch_faults(conn) == []


def test_a_requeue_for_later_counts_as_open_too(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    begin(broker, "b")
    add(broker, "b", "a")
    broker.close_batch("b")
    hand.tell(hand.take(), "failed", reason="r")
    broker.requeue(["a"], "n", delay=60.0)
    assert counts(conn, "b") == {"members": 1, "open": 1}
    assert batch_faults(conn) == []


def test_a_new_life_of_an_id_in_the_same_batch_is_no_second_member(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    begin(broker, "b")
    add(broker, "b", "a")
    hand.tell(hand.take(), "failed", reason="r")
    add(broker, "b", "a")
    assert counts(conn, "b") == {"members": 1, "open": 1}
    hand.tell(hand.take())
    add(broker, "b", "a")
    assert counts(conn, "b") == {"members": 1, "open": 1}
    assert batch_faults(conn) == []


def test_only_members_of_an_open_batch_can_join(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    with pytest.raises(NoSuchBatchError):
        add(broker, "nobody", "a")
    begin(broker, "b")
    add(broker, "b", "a")
    broker.close_batch("b")
    with pytest.raises(BatchClosed, match="closed"):
        add(broker, "b", "late")
    with pytest.raises(BatchClosed):
        add(broker, "b", "late", by="stranger")
    assert conn.exists("rq:job:late") == 0
    add(broker, "b", "child", by="a")
    assert counts(conn, "b") == {"members": 2, "open": 2}
    hand.tell(hand.take())
    with pytest.raises(BatchClosed):
        add(broker, "b", "late", by="a")
    add(broker, "b", "grandchild", by="child")
    broker.cancel_batch("b")
    with pytest.raises(BatchClosed, match="canceled"):
        add(broker, "b", "late", by="child")
    assert batch_faults(conn) == []


def test_nothing_of_a_call_is_written_if_its_batch_takes_no_more(conn: redis.Redis, broker: Broker) -> None:
    begin(broker, "b")
    broker.close_batch("b")
    before = conn.dbsize()
    with pytest.raises(BatchClosed):
        broker.enqueue("q", [new("free"), of_batch("b", "late")], "n")
    assert conn.dbsize() == before


def test_nested_batches_count_as_one_member_and_five_deep_is_deepest(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    parent = ""
    for depth in range(1, 6):
        assert begin(broker, f"b{depth}", parent) == "ok"
        parent = f"b{depth}"
    assert begin(broker, "b6", parent) == "deep"
    assert conn.exists("rq:batch:b6") == 0
    add(broker, "b5", "a")
    for depth in range(1, 6):
        broker.close_batch(f"b{depth}")
    assert all(counts(conn, f"b{depth}") == {"members": 1, "open": 1} for depth in range(1, 6))
    hand.tell(hand.take(), "failed", reason="r")
    assert all(counts(conn, f"b{depth}") == {"members": 1, "failed": 1} for depth in range(1, 6))
    assert batch_faults(conn) == []
    broker.requeue(["a"], "n")
    assert all(counts(conn, f"b{depth}") == {"members": 1, "open": 1} for depth in range(1, 6))
    assert batch_faults(conn) == []
    hand.tell(hand.take())
    assert all(batch_of(conn, f"b{depth}").keys() >= {"success_at", "over"} for depth in range(1, 6))
    assert batch_faults(conn) == []


def test_an_outer_batch_waits_for_an_inner_one_that_is_still_open(conn: redis.Redis, broker: Broker) -> None:
    begin(broker, "outer")
    begin(broker, "inner", "outer")
    broker.close_batch("outer")
    assert counts(conn, "outer") == {"members": 1, "open": 1}
    broker.close_batch("inner")
    assert batch_of(conn, "outer")["over"] == "1"
    assert begin(broker, "late", "outer") == "closed"
    assert begin(broker, "late", "nobody") == "missing"
    assert batch_faults(conn) == []


def test_a_batch_whose_producer_died_is_closed_when_its_time_is_over(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    begin(broker, "b", open_for=60)
    assert broker.tend_batches()[0] == 0
    add(broker, "b", "a")
    conn.zadd("rq:batches:due", {"b": 1})
    broker.tend_batches()
    assert "closed_at" not in batch_of(conn, "b"), "what it says itself counts"
    conn.hset("rq:batch:b", "open_until", 1)
    conn.zadd("rq:batches:due", {"b": 1})
    assert broker.tend_batches() == (1, None)
    assert batch_of(conn, "b")["closed_by"] == "open_for"
    hand.tell(hand.take())
    assert batch_of(conn, "b")["over"] == "1"
    assert batch_faults(conn) == []


def test_each_job_that_joins_gives_the_producer_more_time(conn: redis.Redis, broker: Broker) -> None:
    begin(broker, "b", open_for=60)
    conn.hset("rq:batch:b", "open_until", 1)
    add(broker, "b", "a")
    assert int(batch_of(conn, "b")["open_until"]) > 1
    assert batch_faults(conn) == []


def test_a_batch_that_was_over_for_long_leaves_nothing(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    begin(broker, "outer", keep=0)
    begin(broker, "b", "outer", keep=0)
    add(broker, "b", "a1", "a2")
    broker.close_batch("b")
    one, two = hand.claim(2)
    hand.tell(one)
    hand.tell(two, "failed", reason="r")
    broker.tend_batches()
    assert conn.exists("rq:batch:b"), "the batch around it is not over, and its member may come back"
    broker.close_batch("outer")
    for _ in range(3):
        broker.tend_batches()
    assert [*conn.scan_iter("rq:batch*")] == []
    assert broker.requeue(["a2"], "n") == ["ok"]
    hand.tell(hand.take())
    assert [*conn.scan_iter("rq:batch*")] == []


def test_a_canceled_batch_cancels_what_waits_and_what_runs_as_many_at_a_time_as_asked(
    conn: redis.Redis, broker: Broker, hand: Hand
) -> None:
    begin(broker, "b")
    begin(broker, "inner", "b")
    add(broker, "b", *(f"a{i}" for i in range(7)))
    add(broker, "inner", "i1", queue="p")
    one, two = hand.claim(2, ["q"])
    hand.tell(one)
    answer, canceled, running, again, nested = broker.cancel_batch("b", 4)
    assert (answer, canceled, running, again, nested) == ("ok", 1, 1, True, ["inner"])
    assert conn.zscore("rq:batches:due", "b") is not None and batch_faults(conn) == []
    for _ in range(6):
        broker.tend_batches(4)
    assert broker.tend_batches()[0] == 0
    assert status_of(conn, "i1") == "canceled"
    assert counts(conn, "b") == {"members": 8, "open": 1, "finished": 1, "canceled": 5, "failed": 1}
    hand.tell(two, "retry", reason="r", delay=5)
    assert counts(conn, "b") == {"members": 8, "finished": 1, "canceled": 6, "failed": 1}
    assert batch_of(conn, "b")["over"] == "1" and batch_faults(conn) == []
    assert broker.cancel_batch("nobody")[0] == "missing"


def test_a_broken_batch_fails_no_job_and_keeps_no_other_waiting(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    begin(broker, "b")
    add(broker, "b", "a")
    begin(broker, "other", open_for=-1)
    conn.delete("rq:batch:b:open")
    conn.set("rq:batch:b:open", "junk")
    conn.hset("rq:batch:b", "open_until", 1)
    conn.zadd("rq:batches:due", {"b": 0})
    with pytest.raises(redis.exceptions.ResponseError, match="WRONGTYPE"):
        add(broker, "b", "late")
    assert conn.exists("rq:job:late") == 0
    assert hand.tell(hand.take()) == "ok"
    assert status_of(conn, "a") == "finished"
    broker.tend_batches()
    assert batch_of(conn, "other")["closed_at"]


@pytest.mark.parametrize("way", ["requeue", "restore"])
def test_a_batch_is_canceled_again_when_members_have_come_back(conn: redis.Redis, broker: Broker, way: str) -> None:
    begin(broker, "b")
    add(broker, "b", *(f"a{nth}" for nth in range(120)))
    begin(broker, "inner", "b")
    add(broker, "inner", "in")
    broker.delete_to_trash(["a7"])
    assert Batch(id="b", connection=conn).cancel() == (120, 0)
    assert broker.requeue(["a99", "in"], "n") == ["ok", "ok"]
    if way == "restore":
        assert broker.restore(["a7"], "n") == ["restored"]
    assert Batch(id="b", connection=conn).cancel() == (2 + (way == "restore"), 0)
    assert Batch(id="b", connection=conn).cancel() == (0, 0)
    assert {status_of(conn, one) for one in ("a99", "in")} == {"canceled"}
    assert batch_faults(conn) == []


def test_the_fleet_finishes_a_cancel_whose_caller_died(conn: redis.Redis, broker: Broker) -> None:
    begin(broker, "b")
    add(broker, "b", *(f"a{nth}" for nth in range(120)))
    Batch(id="b", connection=conn).cancel()
    broker.requeue([f"a{nth}" for nth in range(120)], "n")
    assert broker.cancel_batch("b") == ("ok", 30, 0, True, [])
    while broker.tend_batches()[1] == 0:
        pass
    assert counts(conn, "b") == {"members": 120, "canceled": 120} and batch_faults(conn) == []
