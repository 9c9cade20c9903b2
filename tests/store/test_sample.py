"""How much waits, sampled by whoever does maintenance: on the axis of the history, by class, bounded."""

from __future__ import annotations

from datetime import timedelta

import pytest
import redis

from fusion.store.layout.history import MOST_NAMES
from fusion.store.read.inspector import Inspector
from fusion.store.read.queue_inspector import Flow
from fusion.store.read.totals import Step
from fusion.store.write.broker import Broker
from fusion.views.queue import HistoryStepView
from tests.kit.hands import new, put


def age(conn: redis.Redis, job_id: str, seconds: float) -> None:
    """The job came this long ago."""
    at = Inspector(conn).now() - timedelta(seconds=seconds)
    text = at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    conn.hset(f"rq:job:{job_id}", mapping={"enqueued_at": text, "created_at": text})


def sampled(conn: redis.Redis, queue: str, since: float = 3600) -> list[Step]:
    return [step for step in Inspector(conn).history("queue", queue, since) if step.depths]


@pytest.mark.parametrize("since", [3600, 3 * 86400])
def test_depth_and_age_of_each_class_stand_in_the_step_of_their_time(broker: Broker, conn: redis.Redis, since: float) -> None:
    put(broker, "q", "low", priority=0)
    put(broker, "q", "a", "b")
    put(broker, "q", "high", "higher", priority=9)
    for job_id, seconds in (("low", 7200), ("a", 65), ("b", 9999), ("higher", 7)):
        age(conn, job_id, seconds)
    assert not broker.sample(0)
    (step,) = sampled(conn, "q", since)
    assert step.depths == {0: 1, 1: 2, 2: 2}
    assert step.ages[0] == pytest.approx(7200, abs=2)
    assert step.ages[1] == pytest.approx(65, abs=2), "of the one that is next"
    waiting = HistoryStepView.of(step).waiting
    assert waiting is not None
    assert [one.depth for one in waiting.values()] == [2, 2, 1], "the highest class first"


def test_a_step_keeps_the_most_that_was_seen(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a", "b", "c")
    age(conn, "a", 100)
    broker.sample(0)
    broker.delete(["a", "b"])
    put(broker, "q", "low", priority=0)
    broker.sample(0)
    assert max(step.depths[1] for step in sampled(conn, "q")) == 3
    assert max(step.ages[1] for step in sampled(conn, "q")) >= 100
    assert sampled(conn, "q")[-1].depths[0] == 1


@pytest.mark.parametrize("day", ["2000-02-29", "2024-02-29", "2024-03-01", "2025-12-31", "2026-01-01"])
def test_ages_are_right_over_leap_days_and_years(broker: Broker, conn: redis.Redis, day: str) -> None:
    put(broker, "q", "a")
    conn.hset("rq:job:a", "enqueued_at", f"{day}T23:59:58.5Z")
    now = Inspector(conn).now()
    broker.sample(0)
    expected = (now - now.fromisoformat(f"{day}T23:59:58+00:00")).total_seconds()
    assert sampled(conn, "q")[-1].ages[1] == pytest.approx(expected, abs=2)


def test_one_pass_an_interval_however_many_ask_and_it_ends_under_a_clock_set_back(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a")
    broker.sample(60)
    put(broker, "q", "b")
    assert not broker.sample(60)
    assert sampled(conn, "q")[-1].depths == {1: 1}
    conn.hset("rq:sample", "began", 2**45)
    assert not broker.sample(60)
    assert sampled(conn, "q")[-1].depths == {1: 2}, "what began in the future was written by another clock"


def test_empty_queues_leave_no_trace_and_many_are_looked_at_in_parts(broker: Broker, conn: redis.Redis) -> None:
    for n in range(600):
        conn.sadd("rq:queues", f"rq:queue:empty{n}")
    put(broker, "q", "a")
    calls = 1
    while broker.sample(0, 50):
        calls += 1
    assert calls > 5
    assert len(conn.keys("rq:history:*:waiting:*")) == 2
    assert all(0 < conn.ttl(key) <= 31 * 86400 for key in conn.keys("rq:history:*:waiting:*"))


def test_so_many_queues_have_a_history(broker: Broker, conn: redis.Redis) -> None:
    for n in range(MOST_NAMES + 20):
        broker.enqueue(f"q{n}", [new(f"j{n}")], "n")
    while broker.sample(0):
        pass
    assert len(conn.keys("rq:history:minute:waiting:*")) <= 2 * MOST_NAMES
    assert len({key.split(b":")[-2] for key in conn.keys("rq:history:minute:waiting:*")}) == MOST_NAMES
    assert conn.zcard("rq:history:queues") == MOST_NAMES


def test_broken_keys_hold_up_no_other_queue(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "good", "a")
    put(broker, "odd", "b")
    conn.delete("rq:job:b")
    conn.set("rq:job:b", "junk")
    conn.set("rq:queue:broken", "junk")
    conn.sadd("rq:queues", "rq:queue:broken")
    assert not broker.sample(0)
    assert sampled(conn, "good")[-1].depths == {1: 1}
    assert sampled(conn, "odd")[-1].ages == {1: 0}


def test_a_list_queue_counts_its_inbox(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "scheduler", "a", "b")
    broker.sample(0)
    assert sampled(conn, "scheduler")[-1].depths == {1: 2}


@pytest.mark.parametrize("junk", ["", "1", "a b c d e f", "-1 0 0 0 0 0", "9 " * 7, "9" * 30 + " 0 0 0 0 0", "\u00b2 0 0 0 0 0"])
def test_malformed_samples_are_ignored(conn: redis.Redis, junk: str) -> None:
    step = Step(Inspector(conn).now())
    step.sampled(junk)
    assert not step.depths


# -- what comes and goes


def flow(conn: redis.Redis, queue: str) -> Flow | None:
    return Inspector(conn).flows([queue])[0]


def test_arrivals_and_ends_are_reported_per_minute(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a", "b")
    broker.sample(0)
    assert flow(conn, "q") is None, "one sample tells nothing"
    at, *counts = conn.get("rq:flow:q").decode().split()[4:8]
    assert counts == ["2", "0", "0"]
    put(broker, "q", "c", "d", "e", priority=2)
    broker.cancel("a")
    earlier = f"{int(at) - 30_000} {' '.join(counts)}"
    conn.set("rq:flow:q", f"{earlier} {earlier}")
    broker.sample(0)
    found = flow(conn, "q")
    assert found is not None
    assert (found.came, found.went, found.failed) == (pytest.approx(6, rel=0.2), pytest.approx(2, rel=0.2), 0)
    assert 0 < conn.pttl("rq:flow:q") <= 300_000


def test_the_older_sample_is_never_much_older_than_a_minute(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a")
    broker.sample(0)
    now = int(conn.get("rq:flow:q").split()[0])
    conn.set("rq:flow:q", f"{now - 70_000} 0 0 0 {now - 10_000} 1 0 0")
    broker.sample(0)
    assert conn.get("rq:flow:q").startswith(b"%d 1 0 0 " % (now - 10_000))


@pytest.mark.parametrize("stored", [b"", b"x", b"\xff" * 100, b"1 2 3", b"-1 0 0 0 5 1 1 1", b"9" * 1_000_000])
def test_a_flow_that_is_none(broker: Broker, conn: redis.Redis, stored: bytes) -> None:
    put(broker, "q", "a")
    conn.set("rq:flow:q", stored)
    assert flow(conn, "q") is None
    broker.sample(0)
    assert conn.get("rq:flow:q").split()[1:4] == [b"1", b"0", b"0"], "and begins again"


def test_a_stranger_s_flow_stops_no_sampling(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a")
    conn.lpush("rq:flow:q", "a list")
    broker.sample(0)
    assert sampled(conn, "q")
    assert conn.type("rq:flow:q") == b"list"
