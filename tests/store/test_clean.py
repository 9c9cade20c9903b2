"""What is over is forgotten, hash and entry together, and nothing before its time (R11)."""

from __future__ import annotations

import pytest
import redis

from fusion.store.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.store.hands import Hand, drain, everything, fields_of, now_ms, put, status_of


@pytest.fixture
def hand(broker: Broker) -> Hand:
    return Hand(broker, "q")


def _over(conn: redis.Redis, key: str, *job_ids: str) -> None:
    conn.zadd(key, dict.fromkeys(job_ids, now_ms(conn) / 1000 - 2), xx=True)


def test_each_terminal_set(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "finished", "failed", "canceled", "kept", "waiting")
    broker.cancel("canceled")
    finished, failed, kept = hand.claim(3)
    hand.tell(finished)
    hand.tell(failed, "failed", reason="r")
    hand.tell(kept)
    conn.sadd("rq:job:finished:dependents", "child")
    assert not broker.clean()
    assert len(check_conservation(conn, ["finished", "failed", "canceled", "kept", "waiting"])) == 5, "nothing is over yet"
    _over(conn, "rq:finished:q", "finished")
    _over(conn, "rq:queue:failed", "failed")
    _over(conn, "rq:canceled:q", "canceled")
    assert not broker.clean()
    assert check_conservation(conn, ["kept", "waiting"]) == {"kept": "finished", "waiting": "queued"}
    keys = everything(conn)
    assert not [
        key for key in keys if key.split(":")[2:3] in (["finished"], ["failed"], ["canceled"]) and key.startswith("rq:job")
    ]
    assert not {"rq:queue:failed", "rq:canceled:q"} & set(keys)


def test_bounded_work(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    names = [f"j{i:02d}" for i in range(25)]
    put(broker, "q", *names)
    for claimed in hand.claim(25):
        hand.tell(claimed)
    _over(conn, "rq:finished:q", *names)
    assert [broker.clean(10) for _ in range(3)] == [True, True, False]
    assert conn.zcard("rq:finished:q") == 0


def test_the_entry_of_an_earlier_life_does_not_take_the_later_one_along(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    conn.zadd("rq:finished:q", {"a": 1})
    conn.zadd("rq:queue:failed", {"a": 1})
    assert not broker.clean()
    assert check_conservation(conn, ["a"]) == {"a": "queued"}
    assert drain(hand) == ["a"]


def test_a_verdict_stays_a_minute(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", result_ttl=0, failure_ttl=0)
    put(broker, "q", "b", result_ttl=0, failure_ttl=0)
    a, b = hand.claim(2)
    hand.tell(a, fields={"result": "1"})
    hand.tell(b, "failed", reason="r")
    broker.clean()
    assert (status_of(conn, "a"), status_of(conn, "b")) == ("finished", "failed")
    for key in ("rq:finished:q", "rq:queue:failed"):
        assert conn.zrange(key, 0, 0, withscores=True)[0][1] >= now_ms(conn) / 1000 + 58


def test_broken_keys_stop_nothing_else(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b")
    for claimed in hand.claim(2):
        hand.tell(claimed)
    put(broker, "broken", "x")
    conn.delete("rq:queue:broken")
    for key in ("rq:queue:failed", "rq:canceled:q", "rq:queue:broken", "rq:finished:broken"):
        conn.set(key, "junk")
    conn.delete("rq:job:a")
    conn.set("rq:job:a", "not a hash")
    _over(conn, "rq:finished:q", "a", "b")
    assert not broker.clean()
    assert not conn.exists("rq:finished:q", "rq:job:b")
    assert conn.get("rq:job:a") == b"not a hash"


def test_adopting_old_entries_is_bounded_too(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    conn.sadd("rq:queues", "rq:queue:q")
    for i in range(25):
        conn.hset(f"rq:job:j{i:02d}", "data", "d")
        conn.zadd("rq:queue:q", {f"j{i:02d}": 1})
    assert [broker.clean(10) for _ in range(3)] == [True, True, False]
    scores = [score for _, score in conn.zrange("rq:queue:q", 0, -1, withscores=True)]
    assert len(set(scores)) == 25
    assert all(not score.is_integer() for score in scores)
    assert fields_of(conn, "j00")["priority"] == "1"
