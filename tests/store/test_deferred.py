"""Jobs that are deferred: stored, and in no queue until they are released."""

from __future__ import annotations

import secrets
from typing import Any

import pytest
import redis

from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand, drain, events_of, fields_of, new, now_ms, status_of
from tests.store.limits_hands import holders


def defer(broker: Broker, queue: str, *ids: str, priority: int = 1, **more: Any) -> None:
    broker.enqueue(queue, [new(one, priority, **{"ties": "h", **more}) for one in ids], secrets.token_hex(6))


def release(broker: Broker, conn: redis.Redis, *ids: str) -> None:
    """As a script in which a job ends has them released."""
    conn.zadd("rq:releasing", {f"u {one}": 1 for one in ids})
    while broker.release()[1] == 0:
        pass


def test_a_deferred_job_is_no_work(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    defer(broker, "q", "a")
    assert hand.claim(1) == []
    assert check_conservation(conn, ["a"]) == {"a": "deferred"}
    assert [event["event"] for event in events_of(conn, "a")] == ["deferred"]
    assert not conn.exists("rq:queue:q", "rq:wake:q")


def test_a_released_job_arrives_now(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    defer(broker, "q", "a")
    conn.hset("rq:job:a", "ttl", 60)
    broker.enqueue("q", [new("before"), new("high", 2)], "n")
    release(broker, conn, "a")
    found = fields_of(conn, "a")
    assert "arrival" not in found and int(found["expires_at"]) > now_ms(conn) + 50_000
    assert check_conservation(conn, ["a"]) == {"a": "queued"}
    assert [(event["event"], event.get("reason")) for event in events_of(conn, "a")] == [
        ("deferred", None),
        ("queued", "released"),
    ]
    assert drain(hand) == ["high", "before", "a"]
    assert not conn.exists("rq:releasing", "rq:deferred:q")


def test_it_is_released_once(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    defer(broker, "q", "a")
    release(broker, conn, "a")
    assert hand.tell(hand.take()) == "ok"
    release(broker, conn, "a", "nobody")
    assert status_of(conn, "a") == "finished"


def test_a_ttl_begins_with_the_release(broker: Broker, conn: redis.Redis) -> None:
    broker.enqueue("q", [new("a", ttl=60.0, ties="h")], "n")
    assert "expires_at" not in fields_of(conn, "a") and not conn.exists("rq:expiring")


def test_one_with_a_time_waits_for_that_as_well(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    due = now_ms(conn) / 1000 + 60
    broker.enqueue("q", [new("a", due=due, ties="h"), new("over", due=1.0, ties="h")], "n")
    release(broker, conn, "a", "over")
    assert conn.zscore("rq:scheduler:scheduled_jobs", "a") == pytest.approx(due, abs=0.01)
    assert check_conservation(conn, ["a", "over"]) == {"a": "scheduled", "over": "queued"}


def test_one_for_the_front_goes_there_when_it_is_released(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    broker.enqueue("q", [new("back"), new("front", front=True, ties="h")], "n")
    release(broker, conn, "front")
    assert drain(hand) == ["front", "back"]


def test_a_slot_of_its_key_is_taken_at_the_release(broker: Broker, conn: redis.Redis) -> None:
    defer(broker, "q", "a", "b", ties="kh", concurrency_key="k", max_concurrent=1)
    assert holders(conn) == []
    release(broker, conn, "a", "b")
    assert (holders(conn), status_of(conn, "b")) == (["a"], "blocked")
    assert fields_of(conn, "a")["ties"] == "k"


def test_a_deferred_job_takes_no_room(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"max_length": 1})
    defer(broker, "q", "a", "b")
    broker.enqueue("q", [new("c")], "n")


@pytest.mark.parametrize("way", ["cancel", "delete", "empty"])
def test_a_deferred_job_can_be_ended(broker: Broker, conn: redis.Redis, way: str) -> None:
    defer(broker, "q", "a")
    if way == "cancel":
        assert broker.cancel("a") == "canceled"
        assert check_conservation(conn, ["a"]) == {"a": "canceled"}
    elif way == "delete":
        assert broker.delete(["a"]) == ["deleted"]
    else:
        assert broker.empty("q") == (1, False)
    assert not conn.exists("rq:deferred:q")
    check_conservation(conn, [])


def test_a_deferred_job_can_neither_be_requeued_nor_rescheduled(broker: Broker, conn: redis.Redis) -> None:
    defer(broker, "q", "a")
    assert broker.requeue(["a"], "n") == ["deferred"]
    assert broker.reschedule("a", 1.0) == "deferred"


def test_a_turn_says_that_there_is_something_to_release(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    assert not hand.turn().releases
    conn.zadd("rq:releasing", {"u a": 1})
    assert hand.turn().releases


def test_a_job_that_cannot_be_released_is_postponed(broker: Broker, conn: redis.Redis) -> None:
    conn.set("rq:job:a", "junk")
    defer(broker, "q", "b")
    conn.zadd("rq:releasing", {"u a": 1, "u b": 2})
    done, next_in = broker.release()
    assert (done, status_of(conn, "b")) == (1, "queued")
    assert next_in is not None and next_in > 20
