"""Jobs that are to end now: those that wait end at once, of one that runs the wish is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import redis

from fusion.kernel import defaults
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand, drain, events_of, everything, fields_of, now_ms, outcome, put


@pytest.fixture
def heard(conn: redis.Redis) -> Iterator[redis.client.PubSub]:
    """What is published to the worker of `hand`."""
    with conn.pubsub(ignore_subscribe_messages=True) as channel:
        channel.subscribe("rq:pubsub:host.1")
        channel.get_message(timeout=1)
        yield channel


def _command(channel: redis.client.PubSub) -> dict[str, str] | None:
    message = channel.get_message(timeout=0.1)
    return json.loads(message["data"]) if message else None


def test_a_waiting_job_is_stopped_at_once(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b")
    assert broker.stop("a") == "stopped"
    assert broker.stop("a") == "stopped", "again, it is what it answers"
    found = fields_of(conn, "a")
    assert (found["status"], found["reason"]) == ("stopped", "stopped")
    assert "ended_at" in found
    assert conn.zscore("rq:stopped:q", "a") == pytest.approx(now_ms(conn) / 1000 + defaults.CANCELED_TTL, abs=3)
    assert [e["event"] for e in events_of(conn, "a")] == ["queued", "stopped"]
    assert check_conservation(conn, ["a"]) == {"a": "stopped"}
    assert conn.hget("rq:totals:q", "stopped:1") == b"1"
    assert drain(hand) == ["b"]


def test_a_job_that_waits_for_a_retry_is_stopped_at_once(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    hand.tell(hand.take(), "retry", delay=100.0)
    assert broker.stop("a") == "stopped"
    assert check_conservation(conn, ["a"]) == {"a": "stopped"}
    assert conn.zcard("rq:scheduler:scheduled_jobs") == 0


def test_the_worker_of_a_running_job_is_told_which_execution_to_end(
    broker: Broker, hand: Hand, heard: redis.client.PubSub
) -> None:
    put(broker, "q", "a")
    claimed = hand.take()
    assert broker.stop("a") == "pending"
    assert _command(heard) == {"command": "stop-job", "job_id": "a", "execution_id": claimed.execution_id}
    assert hand.extend(claimed) == (True, ["stopped"]), "whoever heard nothing reads it here"


@pytest.mark.parametrize("told", ["retry", "release", "lost", "struck", "held", "later", "limited", "stopped"])
def test_a_stop_wins_over_whatever_is_no_end(broker: Broker, conn: redis.Redis, hand: Hand, told: str) -> None:
    put(broker, "q", "a")
    claimed = hand.take()
    broker.stop("a")
    assert hand.tell(claimed, told, reason="r", delay=5.0) == "ok"
    assert check_conservation(conn, ["a"]) == {"a": "stopped"}
    found = fields_of(conn, "a")
    assert found["reason"] == "stopped"
    assert [e["event"] for e in events_of(conn, "a")] == ["queued", "processing", "stopped"]
    assert broker.stop("a") == "stopped"


@pytest.mark.parametrize("told", ["finished", "failed"])
def test_a_stop_never_wins_over_an_end(broker: Broker, conn: redis.Redis, hand: Hand, told: str) -> None:
    put(broker, "q", "a")
    claimed = hand.take()
    assert broker.stop("a") == "pending"
    assert hand.tell(claimed, told, reason="r") == "ok"
    assert check_conservation(conn, ["a"]) == {"a": told}
    assert broker.stop("a") == told, "and the next call says which it was"


@pytest.mark.parametrize("first", ["cancel", "stop"])
def test_a_stop_outranks_a_cancel_of_the_same_job(broker: Broker, conn: redis.Redis, hand: Hand, first: str) -> None:
    put(broker, "q", "a")
    claimed = hand.take()
    for wish in (first, "stop" if first == "cancel" else "cancel"):
        assert getattr(broker, wish)("a") == "pending"
    hand.tell(claimed, "release", reason="r")
    assert check_conservation(conn, ["a"]) == {"a": "stopped"}


def test_a_worker_that_is_gone_leaves_a_stopped_job(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b")
    hand.claim(2)
    broker.stop("a")
    broker.prune(30, "host.1")
    assert check_conservation(conn, ["a", "b"]) == {"a": "stopped", "b": "queued"}


def test_one_that_was_stopped_starts_over_by_requeue(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    claimed = hand.take()
    broker.stop("a")
    hand.tell(claimed, "stopped", reason="r")
    assert broker.requeue(["a"], "nonce") == ["ok"]
    again = hand.take()
    assert hand.tell(again, "release", reason="r") == "ok"
    assert check_conservation(conn, ["a"]) == {"a": "queued"}, "the wish was for the life before"


def test_an_outcome_of_another_execution_stops_nothing(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    first = hand.take()
    hand.tell(first, "release", reason="r")
    hand.take()
    assert hand.turn(outcome(first, "stopped", reason="r")).answers == ["stale"]
    assert check_conservation(conn, ["a"]) == {"a": "started"}


def test_ended_jobs_cannot_be_stopped(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b", "c")
    a, b, _ = hand.claim(3)
    hand.tell(a)
    hand.tell(b, "failed", reason="r")
    put(broker, "q", "d")
    broker.cancel("d")
    before = everything(conn)
    assert [broker.stop(job_id) for job_id in ("a", "b", "d", "missing")] == ["finished", "failed", "canceled", "missing"]
    assert everything(conn) == before


def test_the_url_that_hears_of_any_end_hears_of_a_stop(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a")
    conn.hset("rq:job:a", mapping={"hooks": 1, "callback_url": "https://x/", "failed_task_handler": "https://y/"})
    broker.stop("a")
    (delivery,) = conn.zrange("rq:queue:_callbacks", 0, -1)
    assert json.loads(conn.hget(b"rq:job:" + delivery, "data"))[3]["status"] == "stopped"
