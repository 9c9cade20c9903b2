"""Jobs that say more of their key: discarded where there is no slot, a slot for a time, a slot kept over a retry's pause."""

from __future__ import annotations

import redis

from fusion.store.write.broker import Broker
from fusion.store.write.queue_calls import AcceptedInPart
from tests.kit.hands import Hand, events_of, fields_of, ids, status_of
from tests.store.limits_hands import faults, give, holders, tied, waiting


def test_a_job_without_a_free_slot_is_discarded_on_request(conn: redis.Redis, broker: Broker) -> None:
    jobs = [tied(one, ties="kd", on_conflict="discard") for one in "abc"]
    at = broker.enqueue("q", jobs, "n")
    assert isinstance(at, AcceptedInPart)
    assert at.discarded == {"b", "c"}
    assert (status_of(conn, "a"), status_of(conn, "b"), fields_of(conn, "b")["reason"]) == ("queued", "canceled", "discarded")
    assert (holders(conn), waiting(conn)) == (["a"], [])
    assert conn.zscore("rq:canceled:q", "b") is not None
    assert conn.zscore("rq:queue:q", "b") is None
    again = broker.enqueue("q", jobs, "n")
    assert isinstance(again, AcceptedInPart)
    assert (again, again.discarded) == (at, {"b", "c"}), "a resend answers as the first time"
    assert faults(conn) == []
    assert [event["event"] for event in events_of(conn, "b")] == ["queued", "canceled"]


def test_nobody_is_discarded_but_at_its_first_arrival(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", "a", ties="kd", on_conflict="discard")
    give(broker, "q", "b")
    hand = Hand(broker, "q")
    hand.tell(hand.take(), "retry", reason="r", delay=60.0)
    conn.zadd("rq:scheduler:scheduled_jobs", {"a": 1}, xx=True)
    hand.take()
    broker.promote()
    assert waiting(conn) == ["a"]
    broker.enqueue("q", [tied("c", ties="kd", on_conflict="discard")], "n")
    assert status_of(conn, "c") == "canceled"
    assert broker.requeue(["c"], "n") == ["ok"]
    assert waiting(conn) == ["a", "c"]
    assert faults(conn) == []


def test_a_job_for_later_is_discarded_when_it_is_due(conn: redis.Redis, broker: Broker) -> None:
    broker.enqueue("q", [tied("later", delay=60.0, ties="kd", on_conflict="discard", callback_url="https://x/", hooks=1)], "n")
    give(broker, "q", "a")
    conn.zadd("rq:scheduler:scheduled_jobs", {"later": 1}, xx=True)
    broker.promote()
    assert status_of(conn, "later") == "canceled"
    assert conn.zcard("rq:queue:_callbacks") == 1, "no other URL is called"
    assert faults(conn) == []


def test_one_that_was_canceled_before_it_arrived_waits_for_its_slot_if_it_is_requeued(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", "first")
    broker.enqueue("q", [tied("later", ties="kd", on_conflict="discard", delay=60.0)], "n")
    broker.cancel("later")
    assert broker.requeue(["later"], "r") == ["ok"]
    assert (faults(conn), holders(conn), waiting(conn)) == ([], ["first"], ["later"])


def test_a_better_job_takes_the_slot_rather_than_being_discarded(conn: redis.Redis, broker: Broker) -> None:
    """It arrives when no slot is free: that the holder has not started is chance."""
    give(broker, "q", "a")
    broker.enqueue("q", [tied("high", priority=2, ties="kd", on_conflict="discard")], "n")
    assert (status_of(conn, "high"), holders(conn)) == ("canceled", ["a"])


def test_a_slot_is_taken_back_after_its_time(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", "a", "b", "c", ties="kt", limit_duration=20)
    hand = Hand(broker, "q")
    claimed = hand.take()
    assert conn.zscore("rq:limits:due", "k a") is not None
    conn.zadd("rq:limits:due", {"k a": 1})
    assert broker.promote()[1] is None or broker.promote()[1]
    assert (status_of(conn, "a"), holders(conn), waiting(conn)) == ("started", ["b"], ["c"])
    assert [event["reason"] for event in events_of(conn, "a") if event["event"] == "slot_released"] == ["limit_duration"]
    other = Hand(broker, "q", name="host.2").take()
    assert other.id == "b", "two run beside each other"
    assert hand.tell(claimed) == "ok"
    assert (holders(conn), waiting(conn)) == (["b"], ["c"]), "it had no slot to hand on"


def test_one_whose_slot_was_taken_back_asks_for_one_to_run_again(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", "a", "b", ties="kt", limit_duration=20)
    hand = Hand(broker, "q")
    claimed = hand.take()
    conn.zadd("rq:limits:due", {"k a": 1})
    broker.promote()
    b = hand.take()
    hand.tell(claimed, "release", reason="r")
    assert (holders(conn), waiting(conn)) == (["b"], ["a"])
    hand.tell(b)
    assert holders(conn) == ["a"]
    assert faults(conn) == []


def test_the_time_of_a_slot_ends_with_the_run(conn: redis.Redis, broker: Broker) -> None:
    for kind in ("release", "finished"):
        give(broker, "q", kind, ties="kt", limit_duration=20)
        hand = Hand(broker, "q")
        hand.tell(hand.take(), kind, reason="r")
        assert not conn.exists("rq:limits:due")
        broker.delete([kind])
        broker.deregister(hand.name, hand.incarnation)


def test_the_next_look_is_told_to_who_claims(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", "a", ties="kt", limit_duration=20_000)
    hand = Hand(broker, "q")
    assert 19 < (hand.turn(slots=[0]).next_in or 0) <= 20
    assert 19 < (hand.turn(slots=[0]).next_in or 0) <= 20, "and to whoever finds nothing"
    assert 19 < (broker.promote()[1] or 0) <= 20


def test_a_retry_may_keep_its_slot(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", "a", "b")
    hand = Hand(broker, "q")
    hand.tell(hand.take(), "retry", reason="r", delay=60.0, fields={"keep_slot": "1"})
    assert (status_of(conn, "a"), holders(conn), hand.claim()) == ("scheduled", ["a"], [])
    assert "keep_slot" not in fields_of(conn, "a")
    assert faults(conn) == []
    conn.zadd("rq:scheduler:scheduled_jobs", {"a": 1}, xx=True)
    broker.promote()
    assert ids(hand.claim(2)) == ["a"]
    assert faults(conn) == []


def test_one_that_keeps_its_slot_over_a_pause_hands_it_on_when_it_is_canceled(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", "a", "b")
    hand = Hand(broker, "q")
    hand.tell(hand.take(), "retry", reason="r", delay=60.0, fields={"keep_slot": "1"})
    broker.cancel("a")
    assert holders(conn) == ["b"]
    assert faults(conn) == []
