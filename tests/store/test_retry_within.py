"""A policy with a window of time: from the first failure on, by the server's clock."""

from __future__ import annotations

import pytest
import redis

from fusion.store.write.broker import Broker
from tests.kit.hands import Hand, events_of, fields_of, now_ms, promote_all, put

WINDOW = {"within": 60_000, "retryCount": 8}


@pytest.fixture
def hand(broker: Broker) -> Hand:
    put(broker, "q", "a")
    return Hand(broker, "q")


def take_again(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    conn.zadd("rq:scheduler:scheduled_jobs", {"a": 1})
    promote_all(broker, conn)


def test_it_counts_from_the_first_failure(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    assert hand.tell(hand.take(), "retry", reason="r", delay=5.0, fields=WINDOW) == "ok"
    since = int(fields_of(conn, "a")["retry_since"])
    assert abs(since - now_ms(conn)) < 5000
    assert "within" not in fields_of(conn, "a")
    take_again(broker, conn, hand)
    hand.tell(hand.take(), "retry", reason="r", delay=5.0, fields=WINDOW)
    assert int(fields_of(conn, "a")["retry_since"]) == since


def test_the_last_retry_comes_when_the_window_is_over_and_then_none(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    hand.tell(hand.take(), "retry", reason="r", delay=0.0, fields=WINDOW)
    began = now_ms(conn)
    conn.hset("rq:job:a", "retry_since", began - 50_000)
    hand.tell(hand.take(), "retry", reason="r", delay=3600.0, fields={**WINDOW, "seq": "", "keep_slot": "1"})
    due = 1000 * (conn.zscore("rq:scheduler:scheduled_jobs", "a") or 0)
    assert began + 9_000 <= due <= began + 12_000, "sooner than it was to be"
    take_again(broker, conn, hand)
    conn.hset("rq:job:a", "retry_since", began - 60_001)
    last = hand.take()
    fields = {**WINDOW, "seq": "", "keep_slot": "1", "error_class": "E", "exc_info": "trace", "retryCount": 99}
    assert hand.tell(last, "retry", reason="E: r", delay=1.0, fields=fields) == "failed"
    record = fields_of(conn, "a")
    assert (record["status"], record["attempts"], record["error_class"], record["reason"]) == ("failed", "3", "E", "E: r")
    assert record["retryCount"] == "8", "there was none"
    assert not {"within", "keep_slot"} & record.keys()
    assert events_of(conn)[-1]["event"] == "failed"
    assert '"outcome":"failed"' in record["history"].splitlines()[-1]
    assert conn.zcard("rq:wip:q") == 0
    assert conn.hlen("rq:worker:host.1:jobs") == 0


def test_a_requeue_begins_a_new_window(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    hand.tell(hand.take(), "retry", reason="r", delay=0.0, fields=WINDOW)
    conn.hset("rq:job:a", "retry_since", 1)
    assert hand.tell(hand.take(), "retry", reason="r", fields=WINDOW) == "failed"
    broker.requeue(["a"], "n")
    assert hand.tell(hand.take(), "retry", reason="r", delay=1.0, fields=WINDOW) == "ok"
    assert fields_of(conn, "a")["status"] == "scheduled"


def test_a_resend_answers_the_same(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    hand.tell(hand.take(), "retry", reason="r", delay=0.0, fields=WINDOW)
    conn.hset("rq:job:a", "retry_since", 1)
    claimed = hand.take()
    assert hand.tell(claimed, "retry", reason="r", fields=WINDOW) == "failed"
    hand.token -= 1
    assert hand.tell(claimed, "retry", reason="r", fields=WINDOW) == "failed"
    assert fields_of(conn, "a")["attempts"] == "2"


def test_a_cancel_that_waits_wins(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    claimed = hand.take()
    broker.cancel("a")
    hand.tell(claimed, "retry", reason="r", delay=1.0, fields=WINDOW)
    assert fields_of(conn, "a")["status"] == "canceled"
    assert "within" not in fields_of(conn, "a")
