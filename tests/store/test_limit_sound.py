"""A concurrency key of which something that is written down is of a wrong type: no job comes in half, and it is said which key it is."""

from __future__ import annotations

import pytest
import redis

from fusion import Queue
from fusion.exceptions import ConfigurationError
from fusion.store.write.broker import Broker
from tests.kit.hands import Hand, events_of, everything, ids, new, now_ms, put, status_of
from tests.store.cron_hands import Cron, fields_of_entry, job
from tests.store.limits_hands import faults, give, holders, tied

PARTS = ["limit:k", "limits:held:k", "limits:waiting:k", "limits", "limits:due", "blocked:q"]


def break_(conn: redis.Redis, part: str) -> None:
    conn.delete(f"rq:{part}")
    conn.set(f"rq:{part}", "theirs")


@pytest.mark.parametrize("part", PARTS)
def test_an_enqueue_is_refused_whole(conn: redis.Redis, broker: Broker, part: str) -> None:
    put(broker, "q", "before")
    break_(conn, part)
    before = everything(conn)
    with pytest.raises(redis.ResponseError, match=f"the concurrency key k is broken at rq:{part}"):
        broker.enqueue("q", [new("plain"), tied("a"), new("late", delay=60.0)], "n")
    assert everything(conn) == before
    put(broker, "q", "plain")
    give(broker, "p", "other", key="o") if part in ("limit:k", "limits:held:k", "limits:waiting:k", "blocked:q") else None
    conn.delete(f"rq:{part}")
    broker.enqueue("q", [tied("a")], "n")
    assert holders(conn) == ["a"]
    assert faults(conn, "k") == []


def test_an_enqueue_names_the_broken_concurrency_key(conn: redis.Redis) -> None:
    conn.set("rq:limit:user:42", "theirs")
    with pytest.raises(
        ConfigurationError, match=r"the concurrency key user:42 is broken at rq:limit:user:42, which holds another program's data"
    ):
        Queue("q", conn).enqueue("tests.jobs.basic.noop", concurrency_key="user:42")
    assert conn.keys("rq:job:*") == []


@pytest.mark.parametrize("part", PARTS)
def test_one_that_is_due_stays_in_the_schedule(conn: redis.Redis, broker: Broker, part: str) -> None:
    broker.enqueue("q", [tied("a", delay=60.0), new("free", delay=60.0)], "n")
    break_(conn, part)
    for job_id in ("a", "free"):
        conn.zadd("rq:scheduler:scheduled_jobs", {job_id: now_ms(conn) / 1000 - 1})
    assert broker.promote()[0] == 1
    assert (status_of(conn, "a"), status_of(conn, "free")) == ("scheduled", "queued")
    assert conn.zscore("rq:queue:q", "a") is None
    assert 28 < (conn.zscore("rq:scheduler:scheduled_jobs", "a") or 0) - now_ms(conn) / 1000 <= 30
    told = [(event["event"], event.get("reason")) for event in events_of(conn, "a")]
    assert told[-1] == ("held", "its concurrency key is broken")
    assert b"broken at rq:" + part.encode() in (conn.hget("rq:job:a", "reason") or b"")
    conn.delete(f"rq:{part}")
    conn.zadd("rq:scheduler:scheduled_jobs", {"a": 1})
    broker.promote()
    assert (status_of(conn, "a"), holders(conn)) == ("queued", ["a"])
    assert "a" in ids(Hand(broker, "q").claim(2))


def test_a_requeue_changes_nothing(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", "a")
    hand = Hand(broker, "q")
    hand.tell(hand.take(), "failed", reason="r")
    break_(conn, "limit:k")
    before = everything(conn)
    (answer,) = broker.requeue(["a"], "n2")
    assert answer.startswith("error: WRONGTYPE the concurrency key k is broken")
    assert everything(conn) == before
    conn.delete("rq:limit:k")
    assert broker.requeue(["a"], "n2") == ["ok"]
    assert holders(conn) == ["a"]


def test_a_tick_of_a_cron_entry_stays_undecided(conn: redis.Redis, broker: Broker) -> None:
    cron, keyed = Cron(conn), job(ties="k", concurrency_key="k")
    tick = cron.now - 60
    conn.set("rq:limit:k", "theirs")
    status, enqueued, _ = cron.tick(tick, of=keyed)
    assert (status.partition(":")[0], enqueued) == ("error", 0)
    assert "the concurrency key k is broken" in fields_of_entry(conn)["error"]
    assert conn.keys("rq:job:*") == []
    conn.delete("rq:limit:k")
    assert cron.tick(tick, of=keyed)[:2] == ("ok", 1)
    assert holders(conn) == [cron.id(tick)]
