"""What follows from the end of a batch: jobs that are deferred until then, each once, whatever is resent; and the results that they read."""

from __future__ import annotations

import pytest
import redis

from fusion.store.write.broker import Broker
from tests.kit.hands import Hand, events_of, may_reap, now_ms, status_of
from tests.store.batch_hands import add, batch_faults, batch_of, begin, callback, counts
from tests.store.kin_hands import child, give, settle


@pytest.fixture
def hand(broker: Broker, conn: redis.Redis) -> Hand:
    may_reap(conn)
    return Hand(broker, "q", "back")


def begun(broker: Broker, batch: str = "b", keep: float = 86400, **more: str) -> None:
    """A batch with both its callbacks."""
    begin(broker, batch, keep=keep, on_complete=f"{batch}-complete", on_success=f"{batch}-success", **more)
    for when in ("complete", "success"):
        callback(broker, batch, when, f"{batch}-{when}")


def drained(broker: Broker) -> int:
    """How many were released, all together."""
    found = 0
    while (step := broker.release())[1] is not None:
        found += step[0]
    return found + step[0]


def states(conn: redis.Redis, batch: str = "b") -> list[str | None]:
    return [status_of(conn, f"{batch}-{when}") for when in ("complete", "success")]


def times_queued(conn: redis.Redis, job_id: str) -> int:
    return sum(event["event"] == "queued" for event in events_of(conn, job_id))


def test_both_are_released_when_the_last_job_finishes(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    begun(broker)
    add(broker, "b", "a1", "a2")
    broker.close_batch("b")
    one, two = hand.claim(2)
    hand.tell(one)
    assert states(conn) == ["deferred", "deferred"] and drained(broker) == 0
    hand.tell(two)
    hand.token += 1
    hand.turn(token=hand.token)
    assert drained(broker) == 2 and drained(broker) == 0
    assert states(conn) == ["queued", "queued"]
    for claimed in hand.claim(2):
        assert claimed.fields[b"batch"] == b"b"
        hand.tell(claimed)
    assert batch_faults(conn) == []
    assert [times_queued(conn, f"b-{when}") for when in ("complete", "success")] == [1, 1]


def test_success_waits_for_the_requeue_that_mends_it_and_complete_follows_no_second_time(
    conn: redis.Redis, broker: Broker, hand: Hand
) -> None:
    begun(broker)
    add(broker, "b", "a1", "a2")
    broker.close_batch("b")
    one, two = hand.claim(2)
    hand.tell(one, "failed", reason="r")
    hand.tell(two, "failed", reason="r")
    drained(broker)
    assert states(conn) == ["queued", "deferred"]
    ended_at = batch_of(conn, "b")["ended_at"]
    for round_, job_id in enumerate(("a1", "a2")):
        broker.requeue([job_id], f"n{round_}")
        hand.tell(hand.take("q"))
        drained(broker)
    assert states(conn) == ["queued", "queued"]
    broker.delete(["a1"])
    assert [times_queued(conn, f"b-{when}") for when in ("complete", "success")] == [1, 1]
    assert batch_of(conn, "b")["ended_at"] == ended_at
    assert batch_faults(conn) == []


def test_a_callback_that_comes_after_the_end_is_released_too(conn: redis.Redis, broker: Broker) -> None:
    begin(broker, "b", on_complete="b-complete", on_success="b-success")
    broker.close_batch("b")
    drained(broker)
    for when in ("complete", "success"):
        callback(broker, "b", when, f"b-{when}")
    assert states(conn) == ["deferred", "deferred"] and drained(broker) == 2
    assert states(conn) == ["queued", "queued"]


def test_a_canceled_batch_runs_on_complete_and_cancels_on_success(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    begun(broker)
    add(broker, "b", "a1", "a2")
    running = hand.take()
    broker.cancel_batch("b")
    drained(broker)
    assert states(conn) == ["deferred", "canceled"]
    hand.tell(running)
    drained(broker)
    assert states(conn) == ["queued", "canceled"]
    assert batch_faults(conn) == []


def test_finished_members_are_kept_until_both_callbacks_have_ended(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    begun(broker)
    add(broker, "b", *(f"a{i}" for i in range(7)))
    add(broker, "b", "for-ever", result_ttl=-1)
    broker.close_batch("b")
    for claimed in hand.claim(8):
        hand.tell(claimed, fields={"result": "1"})
    assert set(dict(conn.zrange("rq:finished:q", 0, -1, withscores=True)).values()) == {float("inf")}
    assert conn.ttl("rq:job:a0") == -1
    drained(broker)
    for claimed in hand.claim(2):
        hand.tell(claimed)
    for _ in range(5):
        broker.tend_batches(3)
    times = {job.decode(): score for job, score in conn.zrange("rq:finished:q", 0, -1, withscores=True)}
    assert times.pop("for-ever") == float("inf")
    assert all(abs(score - now_ms(conn) / 1000 - 500) < 10 for score in times.values()) and len(times) == 7
    assert conn.ttl("rq:job:a0") > 3600 and conn.hget("rq:job:a0", "result") == b"1"
    assert batch_faults(conn) == []


def test_without_callbacks_nothing_is_kept_longer(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    begin(broker, "b")
    add(broker, "b", "a")
    hand.tell(hand.take())
    assert conn.zscore("rq:finished:q", "a") < float("inf")


def test_a_batch_that_is_forgotten_leaves_neither_a_callback_nor_a_pinned_job(
    conn: redis.Redis, broker: Broker, hand: Hand
) -> None:
    begun(broker, keep=0)
    add(broker, "b", "a1", "a2")
    broker.close_batch("b")
    one, two = hand.claim(2)
    hand.tell(one)
    hand.tell(two, "failed", reason="r")
    drained(broker)
    assert states(conn) == ["queued", "deferred"]
    while broker.tend_batches(1)[0]:
        pass
    assert states(conn) == ["queued", "canceled"]
    assert conn.zscore("rq:finished:q", "a1") < float("inf")
    assert [*conn.scan_iter("rq:batch*")] == []
    hand.tell(hand.take("back"))
    assert [*conn.scan_iter("rq:batch*")] == []


def test_the_callbacks_of_a_batch_inside_are_no_members_of_the_outer_one(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    begun(broker, "outer")
    begin(broker, "inner", "outer", on_complete="inner-complete")
    callback(broker, "inner", "complete", "inner-complete")
    add(broker, "inner", "a")
    broker.close_batch("outer")
    broker.close_batch("inner")
    hand.tell(hand.take("q"))
    drained(broker)
    assert batch_of(conn, "outer")["members"] == "1"
    assert states(conn, "outer") == ["queued", "queued"] and status_of(conn, "inner-complete") == "queued"
    assert batch_faults(conn) == []


def test_a_callback_that_was_canceled_or_deleted_is_not_brought_back(conn: redis.Redis, broker: Broker) -> None:
    begun(broker)
    broker.cancel("b-complete")
    broker.delete(["b-success"])
    broker.close_batch("b")
    assert drained(broker) == 0
    assert states(conn) == ["canceled", None]


def test_a_callback_that_failed_and_is_put_back_is_no_member(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    begun(broker)
    add(broker, "b", "a1")
    broker.close_batch("b")
    hand.tell(hand.take())
    assert drained(broker) == 2
    for claimed in hand.claim(2):
        hand.tell(claimed, "failed", reason="r")
    before = counts(conn, "b")
    assert broker.requeue(["b-complete", "b-success"], "again") == ["ok", "ok"]
    assert counts(conn, "b") == before and batch_faults(conn) == []
    for claimed in hand.claim(2):
        hand.tell(claimed)
    assert counts(conn, "b") == before and batch_faults(conn) == []


def test_a_wrong_count_of_a_batch_is_corrected(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    begin(broker, "b", on_complete="c")
    callback(broker, "b", "complete", "c")
    begin(broker, "inner", "b")
    add(broker, "b", "a1", "a2", "a3")
    for batch in ("inner", "b"):
        broker.close_batch(batch)
    hand.tell(hand.take("q"))
    conn.delete("rq:job:a2")
    conn.sadd("rq:batch:b:open", "a1", "#inner")
    broker.clean()
    assert counts(conn, "b") == {"members": 4, "open": 1, "finished": 2, "deleted": 1}
    assert conn.get("rq:batches:audit") == b"3"
    hand.tell(hand.take("q"))
    conn.delete("rq:releasing")
    assert status_of(conn, "c") == "deferred"
    broker.clean()
    broker.release()
    assert status_of(conn, "c") == "queued"
    assert batch_faults(conn) == []


def test_a_member_with_children_is_kept_until_both_they_and_its_batch_let_it_go(
    conn: redis.Redis, broker: Broker, hand: Hand
) -> None:
    begin(broker, "b", on_complete="told")
    add(broker, "b", "a", result_ttl=500)
    callback(broker, "b", "complete", "told")
    give(broker, "q", child("kid", "a"))
    hand.tell(hand.claim()[0])
    settle(broker)
    hand.tell(hand.claim()[0])  # its child
    settle(broker)
    assert status_of(conn, "kid") == "finished" and conn.zscore("rq:pinned", "a") is None
    assert conn.zscore("rq:finished:q", "a") == float("inf"), "told may still read it"
    assert conn.ttl("rq:job:a") == -1
    broker.close_batch("b")
    settle(broker)
    hand.tell(hand.claim()[0])
    assert status_of(conn, "told") == "finished"
    broker.tend_batches()
    assert conn.zscore("rq:finished:q", "a") < float("inf") and conn.ttl("rq:job:a") > 0


def infinite(conn: redis.Redis, queue: str = "q") -> list[str]:
    """Finished jobs that no time forgets."""
    return [raw.decode() for raw in conn.zrangebyscore(f"rq:finished:{queue}", "+inf", "+inf")]


@pytest.mark.parametrize("attached", ["before its batch is over", "before the callback has run"])
def test_a_member_that_gets_a_child_when_it_has_finished_has_its_time_once_that_has_ended(
    conn: redis.Redis, broker: Broker, hand: Hand, attached: str
) -> None:
    begin(broker, "b", on_complete="told")
    add(broker, "b", "a", result_ttl=500)
    callback(broker, "b", "complete", "told")
    hand.tell(hand.take("q"))
    if attached == "before its batch is over":
        give(broker, "q", child("kid", "a", result_ttl=60))
    broker.close_batch("b")
    settle(broker)
    if attached == "before the callback has run":
        give(broker, "q", child("kid", "a", result_ttl=60))
    told, kid = hand.take("back"), hand.take("q")
    hand.tell(told)
    while broker.tend_batches()[1] == 0:
        pass
    settle(broker)
    assert infinite(conn) == ["a"] and conn.zscore("rq:pinned", "a"), "its child may still read it"
    hand.tell(kid)
    settle(broker)
    assert infinite(conn) == [] and conn.zscore("rq:pinned", "a") is None
    assert abs(conn.zscore("rq:finished:q", "a") - now_ms(conn) / 1000 - 500) < 10
    assert 500 < conn.ttl("rq:job:a") <= 4110
    assert batch_faults(conn) == []


def test_a_member_without_an_end_of_its_time_stays_when_its_children_have_ended(
    conn: redis.Redis, broker: Broker, hand: Hand
) -> None:
    begin(broker, "b", on_complete="told")
    add(broker, "b", "a", result_ttl=-1)
    callback(broker, "b", "complete", "told")
    hand.tell(hand.take("q"))
    broker.close_batch("b")
    settle(broker)
    give(broker, "q", child("kid", "a"))
    for queue in ("back", "q"):
        hand.tell(hand.take(queue))
    broker.tend_batches()
    settle(broker)
    assert infinite(conn) == ["a"] and conn.ttl("rq:job:a") == -1


def test_members_of_a_batch_that_another_opens_without_callbacks_have_their_time(
    conn: redis.Redis, broker: Broker, hand: Hand
) -> None:
    begin(broker, "b", on_complete="told", keep=0)  # its producer dies before `told` has come
    add(broker, "b", "early", result_ttl=500)
    hand.tell(hand.take("q"))
    begin(broker, "b", keep=0)
    add(broker, "b", "late", result_ttl=500)
    hand.tell(hand.take("q"))
    broker.close_batch("b")
    for _ in range(5):
        broker.tend_batches()
    assert not conn.exists("rq:batch:b") and infinite(conn) == []
    assert abs(conn.zscore("rq:finished:q", "early") - now_ms(conn) / 1000 - 500) < 10
