"""Ended jobs that start over."""

from __future__ import annotations

import pytest
import redis

from fusion.kernel import defaults
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand, drain, events_of, everything, fields_of, now_ms, promote_all, put


@pytest.fixture
def hand(broker: Broker) -> Hand:
    return Hand(broker, "q", "r")


def _fail(hand: Hand, count: int = 1) -> None:
    for claimed in hand.claim(count):
        hand.tell(claimed, "failed", reason="r", fields={"exc_info": "Traceback", "retryCount": 10})


def test_back_to_its_queue_and_priority_behind_those_waiting(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    _fail(hand)
    put(broker, "q", "b")
    put(broker, "q", "low", priority=0)
    conn.delete("rq:wake:q")
    before = fields_of(conn, "a")
    assert broker.requeue(["a"], "n") == ["ok"]
    found = fields_of(conn, "a")
    assert (found["status"], found["retryCount"], found["lost"]) == ("queued", str(defaults.RETRY_COUNT_START), "0")
    assert not {"exc_info", "reason", "ended_at", "execution_id"} & set(found)
    assert int(found["seq"]) > int(before["seq"])
    assert found["enqueued_at"] > before["created_at"]
    assert found["created_at"] == before["created_at"]
    assert conn.ttl("rq:job:a") == -1
    assert conn.llen("rq:wake:q") == 1
    assert events_of(conn, "a")[-1]["reason"] == "requeued"
    assert check_conservation(conn, ["a"]) == {"a": "queued"}
    assert drain(hand, 1) == ["b", "a", "low"]


def test_keep_place(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b")
    _fail(hand, 2)
    put(broker, "q", "c")
    assert broker.requeue(["b", "a"], "n", keep_place=True) == ["ok", "ok"]
    assert drain(hand, 1) == ["a", "b", "c"]


def test_to_the_queue_it_was_enqueued_to(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    _fail(hand)
    conn.hset("rq:job:a", "original_queue", "r")
    assert broker.requeue(["a"], "n") == ["ok"]
    assert fields_of(conn, "a")["origin"] == "r"
    assert conn.zscore("rq:queue:r", "a") is not None
    assert check_conservation(conn, ["a"]) == {"a": "queued"}


def test_each_answer(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "waiting", "running", "finished", "failed", "no-data", "canceled")
    broker.cancel("canceled")
    put(broker, "q", "first", priority=2)
    hand.take()
    jobs = {claimed.id: claimed for claimed in hand.claim(5)}
    hand.tell(jobs["waiting"], "release", reason="r")
    hand.tell(jobs["finished"])
    for job_id in ("failed", "no-data"):
        hand.tell(jobs[job_id], "failed", reason="r")
    conn.hdel("rq:job:no-data", "data")
    conn.zadd("rq:queue:failed", {"missing": 1})
    before = {name: everything(conn)[f"rq:job:{name}"] for name in ("waiting", "running", "finished", "no-data")}
    names = ["waiting", "running", "finished", "failed", "no-data", "canceled", "missing"]
    assert broker.requeue(names, "n") == ["queued", "started", "finished", "ok", "corrupt", "ok", "missing"]
    assert {name: everything(conn)[f"rq:job:{name}"] for name in before} == before
    assert conn.zrange("rq:queue:failed", 0, -1) == [b"no-data"], "an entry that leads nowhere is cleared away"
    assert check_conservation(conn, names[:-1])["failed"] == "queued"


def test_a_resend_answers_ok_and_changes_nothing(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b")
    _fail(hand, 2)
    assert broker.requeue(["a", "b"], "nonce") == ["ok", "ok"]
    before = everything(conn)
    assert broker.requeue(["a", "b"], "nonce") == ["ok", "ok"]
    assert everything(conn) == before
    _fail(hand, 2)
    before = everything(conn)
    assert broker.requeue(["a", "b"], "nonce") == ["ok", "ok"], "even if it has failed again since"
    assert everything(conn) == before
    assert broker.requeue(["a"], "another") == ["ok"]
    assert check_conservation(conn, ["a", "b"]) == {"a": "queued", "b": "failed"}


def test_its_time_to_start_begins_again(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", ttl=60)
    conn.hset("rq:job:a", mapping={"ttl": 60, "expires_at": 1})
    assert hand.claim() == []
    assert fields_of(conn, "a")["reason"] == "expired"
    assert broker.requeue(["a"], "n") == ["ok"]
    assert 50_000 < int(fields_of(conn, "a")["expires_at"]) - now_ms(conn) <= 60_000
    assert drain(hand) == ["a"]


def test_requeued_for_later(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    """It waits in the schedule and arrives when it is due, with the whole of its ttl."""
    put(broker, "q", "a", "b", ttl=60)
    conn.hset("rq:job:a", "ttl", "1.1")
    _fail(hand, 2)
    conn.delete("rq:wake:q", "rq:wake:_scheduler")
    before = now_ms(conn)
    assert broker.requeue(["a", "b"], "n", delay=90.0) == ["ok", "ok"]
    assert check_conservation(conn, ["a", "b"]) == {"a": "scheduled", "b": "scheduled"}
    due = conn.zscore("rq:scheduler:scheduled_jobs", "a")
    assert due == pytest.approx(before / 1000 + 90, abs=2)
    assert fields_of(conn, "a")["expires_at"] == str(round(due * 1000) + 1100)
    assert (conn.exists("rq:wake:q"), conn.llen("rq:wake:_scheduler")) == (0, 1)
    assert events_of(conn, "a")[-1]["event"] == "scheduled"
    state = everything(conn)
    assert broker.requeue(["a", "b"], "n", delay=90.0) == ["ok", "ok"]
    assert everything(conn) == state
    assert broker.reschedule("a", due + 60) == "ok"
    assert fields_of(conn, "a")["expires_at"] == str(round((due + 60) * 1000) + 1100), "its time to start moves along"
    put(broker, "q", "c")
    conn.zadd("rq:scheduler:scheduled_jobs", {"b": 1, "a": 2})
    assert broker.promote()[:2] == (2, None)
    assert drain(hand, 1) == ["c", "b", "a"]
    assert set(check_conservation(conn, ["a", "b"]).values()) == {"started"}


def test_requeued_for_later_to_the_old_place(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    _fail(hand)
    put(broker, "q", "b")
    assert broker.requeue(["a"], "n", keep_place=True, delay=90.0) == ["ok"]
    assert broker.reschedule("a", 1.0) == "ok"
    broker.promote()
    assert drain(hand, 1) == ["a", "b"]
    assert check_conservation(conn, ["a"]) == {"a": "started"}


def test_it_may_go_to_the_front(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    """Also after a delay: before all others of its priority."""
    put(broker, "q", "a", "b", "c")
    for held in hand.claim(2):
        hand.tell(held, "failed", reason="no")
    assert broker.requeue(["a"], "n1", at_front=True) == broker.requeue(["a"], "n1", at_front=True) == ["ok"]
    assert broker.requeue(["b"], "n2", at_front=True, delay=60) == ["ok"]
    promote_all(broker, conn)
    assert drain(hand) == ["b", "a", "c"]
    check_conservation(conn, "abc")
