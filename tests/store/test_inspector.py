"""Looking: counts, pages, ages, and that looking changes nothing."""

from __future__ import annotations

import gc
import weakref

import pytest
import redis

from fusion.kernel.timeutil import from_iso
from fusion.settings import use_settings
from fusion.store.access import broker_of, inspector_of
from fusion.store.client.connections import connect
from fusion.store.read.inspector import Inspector, Totals
from fusion.store.read.queue_inspector import Flow
from fusion.store.read.tolerant import forgiving
from fusion.store.write.broker import Broker
from tests.kit import guarded
from tests.kit.hands import DATA, Hand, everything, fields_of, ids, now_ms, put, wire


@pytest.fixture
def inspector(conn: redis.Redis) -> Inspector:
    return Inspector(conn)


def test_a_queue_by_class(broker: Broker, conn: redis.Redis, inspector: Inspector) -> None:
    for priority, count in ((0, 1), (1, 2), (2, 3), (7, 1)):
        put(broker, "q", *(f"p{priority}-{i}" for i in range(count)), priority=priority)
    put(broker, "q", "at-front", priority=0, front=True)
    put(broker, "other", "o")
    hand = Hand(broker, "q")
    taken = hand.claim(2)
    hand.tell(taken[1])
    broker.cancel("p1-0")
    conn.zadd("rq:queue:q", {"old-low": 0, "old-high": 2})
    q, other, none = inspector.queues(["q", "other", "none"])
    assert (q.low, q.moderate, q.high, q.inbox, q.count) == (3, 1, 3, 0, 7)
    assert (q.started, q.finished, q.deferred, q.canceled, q.error) == (1, 1, 0, 1, "")
    assert (other.name, other.count, none.count, none.oldest) == ("other", 1, 0, None)
    assert (inspector.count("q"), inspector.count("none")) == (7, 0)


def test_the_oldest_is_that_of_any_class(broker: Broker, conn: redis.Redis, inspector: Inspector) -> None:
    put(broker, "q", "a", priority=0)
    put(broker, "q", "b", priority=2)
    (info,) = inspector.queues(["q"])
    assert info.oldest == from_iso(fields_of(conn, "a")["created_at"])
    conn.hset("rq:job:a", "enqueued_at", "junk")
    conn.hset("rq:job:b", "enqueued_at", "2020-01-01T00:00:00")
    (info,) = inspector.queues(["q"])
    assert info.oldest == from_iso("2020-01-01T00:00:00Z")


def test_a_broken_key_is_shown_and_hides_nothing_else(broker: Broker, conn: redis.Redis, inspector: Inspector) -> None:
    put(broker, "good", "a")
    conn.set("rq:queue:bad", "junk")
    conn.set("rq:wip:half", "junk")
    put(broker, "half", "b", "c")
    conn.delete("rq:job:b")
    conn.set("rq:job:b", "junk")
    bad, half, good = inspector.queues(["bad", "half", "good"])
    assert (bad.count, good.count, half.count) == (0, 1, 2)
    assert "WRONGTYPE" in bad.error
    assert "WRONGTYPE" in half.error
    assert good.error == ""


def test_however_many_queues_three_round_trips(broker: Broker, conn: redis.Redis, inspector: Inspector) -> None:
    names = [f"q{i}" for i in range(30)]
    for name in names:
        put(broker, name, f"{name}-job")
    with wire(conn) as sent:
        assert len(inspector.queues(names)) == 30
    assert len(sent) == 3


def test_pages_are_in_the_order_of_claims(broker: Broker, conn: redis.Redis, inspector: Inspector) -> None:
    put(broker, "q", *(f"j{i}" for i in range(5)))
    put(broker, "q", "low", priority=0)
    put(broker, "q", "high", priority=2)
    order = ["high", "j0", "j1", "j2", "j3", "j4", "low"]
    assert inspector.waiting("q") == inspector.waiting("q", 0, -1) == order
    assert inspector.waiting("q", 2, 3) == order[2:5]
    assert inspector.waiting("q", 5, -1) == order[5:]
    assert inspector.waiting("q", 0, 0) == []
    assert [inspector.position("q", job_id) for job_id in ("high", "low", "missing")] == [0, 6, None]
    assert ids(Hand(broker, "q").claim(7)) == order


def test_members_of_a_state(broker: Broker, conn: redis.Redis, inspector: Inspector) -> None:
    put(broker, "q", "finished", "failed", "retried", "running", "canceled")
    hand = Hand(broker, "q")
    jobs = hand.claim(4)
    for claimed, kind in zip(jobs, ("finished", "failed", "retry"), strict=False):
        hand.tell(claimed, kind, reason="r", delay=9.0)
    broker.cancel("canceled")
    for status, job_id in (
        ("finished", "finished"), ("failed", "failed"), ("scheduled", "retried"), ("started", "running"), ("canceled", "canceled"),
    ):  # fmt: skip
        assert inspector.members(status, "q") == inspector.members(status, "q", 0, -1) == [job_id]
        assert inspector.members(status, "q", 1) == inspector.members(status, "q", 0, 0) == []
    assert inspector.members("stopped", "q") == inspector.members("deferred", "q") == []
    assert inspector.failed_count() == 1
    assert inspector.totals() == Totals(failed=1, scheduled=1, suspended=False)
    broker.suspend()
    assert inspector.totals().suspended


def test_jobs(broker: Broker, conn: redis.Redis, inspector: Inspector) -> None:
    put(broker, "q", "a", "b")
    with wire(conn) as sent:
        a, missing, b = inspector.jobs(["a", "missing", "b"])
    assert len(sent) == 1
    assert (a["data"], a["origin"], missing, b["seq"]) == (DATA, b"q", {}, b"2")
    assert inspector.job("a") == a
    assert inspector.fields("a", "status", "nothing") == [b"queued", None]
    assert inspector.jobs([]) == []


def test_names_of_queues(broker: Broker, conn: redis.Redis, inspector: Inspector) -> None:
    for name in ("sms", "email", "scheduler"):
        put(broker, name, f"{name}-1")
    conn.sadd("rq:queues", "rq:queue:_callbacks", "rq:queue:failed")
    assert inspector.queue_names() == ["email", "scheduler", "sms"]
    asked = ("sms", "email", "scheduler", "failed", "_callbacks", "none")
    assert [name for name in asked if inspector.has_queue(name)] == ["sms", "email", "scheduler"]
    conn.delete("rq:queues")
    conn.set("rq:queues", "junk")
    looking, broken = forgiving(conn)
    assert not Inspector(looking).has_queue("sms") and broken == {"rq:queues": "a set"}


def test_a_queue_is_read_with_its_clock_and_its_rate(broker: Broker, conn: redis.Redis, inspector: Inspector) -> None:
    put(broker, "q", "a")
    conn.set("rq:flow:q", "1000 0 0 0 61000 6 3 1")
    conn.hset("rq:flow:other", "no", "string")
    before = inspector.now()
    q, other = inspector.queues(["q", "other"])
    assert before <= q.at == other.at <= inspector.now()
    assert (q.flow, other.flow) == (Flow(6, 3, 1), None)
    assert [q.flow, other.flow] == inspector.flows(["q", "other"]) and other.error == ""


def test_workers(broker: Broker, conn: redis.Redis, inspector: Inspector) -> None:
    put(broker, "q", "a", "b")
    hand = Hand(broker, "q", "r")
    Hand(broker, "q", name="silent.1")
    conn.hset("rq:worker:silent.1", "beat_ms", now_ms(conn) - 40_000)
    Hand(broker, "q", name="gone.1")
    conn.delete("rq:worker:gone.1")
    conn.hset("rq:worker:host.1", mapping={"pid": 42, "hostname": "host"})
    first, _ = hand.claim(2)
    hand.tell(first, elapsed=1.5)
    found = {info.name: info for info in inspector.workers()}
    assert set(found) == {"host.1", "silent.1"}
    info = found["host.1"]
    assert (info.state, info.queues, info.pid, info.hostname, info.current_job) == ("busy", ("q", "r"), 42, "host", "b"), (
        "a has ended"
    )
    assert (info.successful_jobs, info.failed_jobs, info.working_seconds) == (1, 0, 1.5)
    assert info.birth is not None
    assert info.last_heartbeat is not None
    assert (info.alive, found["silent.1"].alive) == (True, False)


def test_looking_changes_nothing(broker: Broker, conn: redis.Redis, inspector: Inspector) -> None:
    put(broker, "q", "a", "b")
    put(broker, "scheduler", "s")
    Hand(broker, "q").take()
    before = everything(conn, clocks=True)
    inspector.queues(["q", "scheduler", "none"])
    inspector.workers()
    inspector.totals()
    inspector.jobs(["a", "none"])
    inspector.waiting("q")
    inspector.members("started", "q")
    inspector.count("scheduler")
    assert everything(conn, clocks=True) == before


def test_a_connection_keeps_its_broker_and_takes_it_along(
    conn: redis.Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert broker_of(conn) is broker_of(conn)
    assert inspector_of(conn).keys.prefix == "rq:"
    monkeypatch.setenv("FUSION_PREFIX", "other:")
    guarded.allow_prefix(conn, "other:")
    use_settings(None)
    assert broker_of(conn).keys.prefix == inspector_of(conn).keys.prefix == "other:"
    client = connect(redis_url)
    put(broker_of(client), "q", "a")
    gone = weakref.ref(client)
    client.close()
    del client
    gc.collect()
    assert gone() is None
