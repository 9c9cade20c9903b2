"""Jobs that shall not run, or not be there any more."""

from __future__ import annotations

import pytest
import redis

from fusion.kernel import defaults
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import DATA, Hand, drain, events_of, everything, fields_of, ids, now_ms, outcome, put, status_of


def test_a_waiting_job_is_canceled(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b")
    assert broker.cancel("a") == "canceled"
    assert broker.cancel("a") == "canceled", "again, it is what it answers"
    found = fields_of(conn, "a")
    assert (found["status"], found["reason"]) == ("canceled", "canceled")
    assert "ended_at" in found
    assert conn.zscore("rq:canceled:q", "a") == pytest.approx(now_ms(conn) / 1000 + defaults.CANCELED_TTL, abs=3)
    assert [e["event"] for e in events_of(conn, "a")] == ["queued", "canceled"]
    assert check_conservation(conn, ["a"]) == {"a": "canceled"}
    assert drain(hand) == ["b"]


def test_a_scheduled_job_is_canceled(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    hand.tell(hand.take(), "retry", delay=100.0)
    assert broker.cancel("a") == "canceled"
    assert check_conservation(conn, ["a"]) == {"a": "canceled"}
    assert conn.zcard("rq:scheduler:scheduled_jobs") == 0


def test_a_running_job_is_canceled_when_its_run_does_not_end_it(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    claimed = hand.take()
    assert broker.cancel("a") == "pending"
    assert broker.cancel("a") == "pending"
    assert hand.extend(claimed) == (True, ["canceled"])
    assert hand.turn(outcome(claimed, "release", reason="r")).answers == ["ok"]
    assert check_conservation(conn, ["a"]) == {"a": "canceled"}


def test_ended_jobs_cannot_be_canceled(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b")
    a, b = hand.claim(2)
    hand.tell(a)
    hand.tell(b, "failed", reason="r")
    before = everything(conn)
    assert [broker.cancel(job_id) for job_id in ("a", "b", "missing")] == ["finished", "failed", "missing"]
    assert everything(conn) == before


def test_an_old_producers_job_is_canceled(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    conn.hset("rq:job:old", mapping={"data": DATA, "status": "queued"})
    conn.zadd("rq:queue:q", {"old": 1})
    assert broker.cancel("old") == "canceled"
    assert hand.claim() == []
    assert status_of(conn, "old") == "canceled"


@pytest.mark.parametrize("state", ["queued", "scheduled", "finished", "failed", "canceled"])
def test_delete_leaves_no_trace(broker: Broker, conn: redis.Redis, hand: Hand, state: str) -> None:
    put(broker, "q", "a")
    conn.sadd("rq:job:a:dependents", "child")
    if state == "canceled":
        broker.cancel("a")
    elif state != "queued":
        hand.tell(hand.take(), {"scheduled": "retry"}.get(state, state), reason="r", delay=50.0)
    assert status_of(conn, "a") == state
    assert broker.delete(["a", "missing"]) == ["deleted", "missing"]
    assert not [key for key in conn.scan_iter() if b":a" in key]
    for key in ("rq:queue:q", "rq:scheduler:scheduled_jobs", "rq:finished:q", "rq:queue:failed", "rq:canceled:q"):
        assert not conn.exists(key)
    assert events_of(conn, "a")[-1]["event"] == "deleted"
    assert broker.delete(["a"]) == ["missing"]


def test_deleting_what_is_gone_clears_its_entry_among_the_failed(broker: Broker, conn: redis.Redis) -> None:
    conn.zadd("rq:queue:failed", {"gone": 1, "other": 1})
    assert broker.delete(["gone"]) == ["missing"]
    assert conn.zrange("rq:queue:failed", 0, -1) == [b"other"]


def test_a_running_job_is_not_deleted(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    claimed = hand.take()
    assert broker.delete(["a"]) == ["started"]
    assert hand.tell(claimed) == "ok"


def test_empty_forgets_what_waits_and_only_that(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "running", *(f"j{i}" for i in range(20)))
    put(broker, "r", "other")
    running = hand.take()
    conn.zadd("rq:queue:q", {"stale": 0.1})
    conn.hset("rq:job:stale", "status", "finished")
    assert broker.empty("q", 15) == (14, True)
    assert broker.empty("q", 15) == (6, False)
    assert not conn.exists("rq:queue:q", "rq:job:j3")
    assert (status_of(conn, "stale"), status_of(conn, "other")) == ("finished", "queued")
    assert hand.tell(running) == "ok"
    assert [e["job_id"] for e in events_of(conn) if e["event"] == "deleted"][:2] != []
    put(broker, "q", "new")
    assert ids(hand.claim()) == ["new"]


def test_save_meta(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    claimed = hand.take()
    assert broker.save_meta("a", '{"step": 1}', claimed.execution_id) == "ok"
    assert broker.save_meta("a", '{"step": 2}', "other:1:1") == "stale"
    assert fields_of(conn, "a")["meta"] == '{"step": 1}'
    assert broker.save_meta("a", '{"step": 3}') == "ok", "its owner may, whoever runs it"
    hand.tell(claimed)
    assert broker.save_meta("a", "{}", claimed.execution_id) == "stale"
    assert broker.save_meta("missing", "{}") == "missing"
    assert not conn.exists("rq:job:missing")
