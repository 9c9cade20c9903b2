"""A worker with many jobs: they go back in calls of which each is short, whoever dies between two of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest
import redis

from fusion.store.layout.records import NewJob
from fusion.store.write.broker import Broker
from fusion.store.write.limit_broker import LimitBroker
from fusion.store.write.operation_broker import Move
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import (
    LEASE,
    Hand,
    drain,
    events_of,
    expire_lease,
    fields_of,
    may_reap,
    new,
    outcome,
    put,
    status_of,
    wire,
)
from tests.kit.process import ROOT
from tests.store.limits_hands import faults

JOBS = [f"j{n:03}" for n in range(200)]


@pytest.fixture
def hand(broker: Broker, conn: redis.Redis) -> Hand:
    """A worker that runs many jobs."""
    may_reap(conn)
    put(broker, "q", *JOBS)
    hand = Hand(broker, "q")
    assert len(hand.claim(len(JOBS))) == len(JOBS)
    return hand


def lost_of(conn: redis.Redis) -> dict[str, int]:
    """The jobs that are queued again, each with the number of times that it was lost."""
    return {job: int(fields_of(conn, job).get("lost", 0)) for job in JOBS if status_of(conn, job) == "queued"}


def killed(redis_url: str, place: str, call: str) -> None:
    """Have a process make a call; it is killed at this place."""
    code = (
        "from fusion.settings import get_settings; from fusion.store.client.connections import connect\n"
        "from fusion.store.write.broker import Broker\n"
        f"broker = Broker.of(connect({redis_url!r}), get_settings())\n{call}"
    )
    env = {**os.environ, "FUSION_FAILPOINTS": f"{place}=kill"}
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, check=False, timeout=60).returncode == -9


@pytest.mark.parametrize("way", ["named", "silent"])
def test_jobs_of_a_dead_worker_are_returned_in_short_calls(broker: Broker, conn: redis.Redis, hand: Hand, way: str) -> None:
    if way == "silent":
        conn.hset(f"rq:worker:{hand.name}", "beat_ms", 1)
    with wire(conn) as sent:
        assert broker.prune(LEASE, hand.name if way == "named" else "") == [(hand.name, len(JOBS))]
    assert sent.count("EVALSHA") + sent.count("EVAL") >= 3
    assert lost_of(conn) == dict.fromkeys(JOBS, 1)
    assert Counter(event["job_id"] for event in events_of(conn) if event["event"] == "abandoned") == Counter(JOBS)
    assert conn.exists("rq:worker:host.1", "rq:worker:host.1:jobs", "rq:workers", "rq:fleet") == 0
    assert drain(Hand(broker, "q", name="host.2")) == JOBS, "at their old places"


def test_others_finish_giving_back_jobs_when_the_pruner_dies(
    broker: Broker, conn: redis.Redis, redis_url: str, hand: Hand
) -> None:
    killed(redis_url, "prune.after", f"broker.prune({LEASE}, {hand.name!r})")
    before = lost_of(conn)
    assert 0 < len(before) < len(JOBS)
    assert broker.prune(LEASE) == [], "nobody else knows yet that the worker is dead"
    conn.hset(f"rq:worker:{hand.name}", "beat_ms", 1)
    assert broker.prune(LEASE) == [(hand.name, len(JOBS) - len(before))]
    assert lost_of(conn) == dict.fromkeys(JOBS, 1)
    assert Counter(event["job_id"] for event in events_of(conn) if event["event"] == "abandoned") == Counter(JOBS)
    assert set(check_conservation(conn, JOBS).values()) == {"queued"}


def test_a_worker_that_lives_after_all_keeps_what_it_still_holds(
    broker: Broker, conn: redis.Redis, redis_url: str, hand: Hand
) -> None:
    held = conn.hgetall(f"rq:worker:{hand.name}:jobs")
    killed(redis_url, "prune.after", f"broker.prune({LEASE}, {hand.name!r})")
    before = lost_of(conn)
    pairs = [(job.decode(), run.decode()) for job, run in held.items()]
    registered, answers = broker.extend(hand.name, hand.incarnation, pairs, LEASE, 420, "busy")
    assert registered
    assert {job for (job, _), answer in zip(pairs, answers, strict=True) if answer == "lost"} == set(before)
    assert broker.prune(LEASE) == []
    assert lost_of(conn) == before


def test_a_worker_that_ends_gives_all_back_in_short_calls(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    with wire(conn) as sent:
        assert broker.deregister(hand.name, hand.incarnation) == len(JOBS)
    assert sent.count("EVALSHA") + sent.count("EVAL") >= 3
    assert lost_of(conn) == dict.fromkeys(JOBS, 0)
    assert conn.exists("rq:worker:host.1", "rq:worker:host.1:jobs", "rq:workers", "rq:fleet") == 0
    assert drain(Hand(broker, "q", name="host.2")) == JOBS


def test_a_worker_that_is_killed_while_it_ends_is_pruned(broker: Broker, conn: redis.Redis, redis_url: str, hand: Hand) -> None:
    killed(redis_url, "deregister.after", f"broker.deregister({hand.name!r}, {hand.incarnation!r})")
    before = lost_of(conn)
    assert 0 < len(before) < len(JOBS)
    conn.hset(f"rq:worker:{hand.name}", "beat_ms", 1)
    assert broker.prune(LEASE) == [(hand.name, len(JOBS) - len(before))]
    assert lost_of(conn) == {job: 0 if job in before else 1 for job in JOBS}


def test_leases_that_ran_out_are_reaped_by_weight(broker: Broker, conn: redis.Redis) -> None:
    """A job with a concurrency key costs several plain ones."""
    may_reap(conn)
    hand = Hand(broker, "q", "r")
    put(broker, "q", *JOBS[:100])
    broker.enqueue("r", [new(f"k{n}", ties="k", concurrency_key="k", max_concurrent=99) for n in range(60)], "n")
    for queue, count in (("q", 100), ("r", 60)):
        assert len(hand.claim(count, [queue])) == count
    expire_lease(conn, "q", *JOBS[:100])
    assert broker.reap(LEASE, 0, limit=100)[0] == 100
    expire_lease(conn, "r", *(f"k{n}" for n in range(60)))
    found = [broker.reap(LEASE, 0, limit=100) for _ in range(3)]
    assert [again for _, again in found] == [True, True, False]
    assert [count for count, _ in found] == [25, 25, 10]


def bound_jobs(count: int, **more: object) -> list[NewJob]:
    """Jobs with a concurrency key that has room for all."""
    return [new(f"k{n:03}", ties="k", concurrency_key="k", max_concurrent=999, **more) for n in range(count)]


def test_jobs_that_are_bound_leave_their_queue_by_weight(broker: Broker, conn: redis.Redis) -> None:
    broker.enqueue("q", bound_jobs(100), "n")
    assert [broker.empty("q") for _ in range(2)] == [(75, True), (25, False)]
    broker.enqueue("q", bound_jobs(30), "n")
    assert [broker.empty_to_trash("q") for _ in range(2)] == [(25, True, 25), (5, False, 5)]
    assert conn.exists("rq:queue:q", "rq:limits:held:k") == 0


def test_an_inbox_is_emptied_by_weight_and_in_its_order(broker: Broker, conn: redis.Redis) -> None:
    broker.enqueue("scheduler", bound_jobs(100), "n")
    assert broker.empty("scheduler") == (75, True)
    assert [raw.decode() for raw in conn.lrange("rq:queue:scheduler", 0, -1)] == [f"k{n:03}" for n in range(75, 100)]
    assert broker.empty("scheduler") == (25, False)


def test_times_that_come_together_are_seen_to_by_weight(broker: Broker, conn: redis.Redis) -> None:
    for n, job in enumerate(bound_jobs(50, delay=60.0)):
        broker.enqueue("q", [job], f"n{n}")
    conn.zadd("rq:scheduler:scheduled_jobs", {f"k{n:03}": 1 for n in range(50)})
    assert [broker.promote()[:2] for _ in range(3)] == [(20, 0.0), (20, 0.0), (10, None)]
    order = [raw.decode() for raw in conn.zrevrange("rq:queue:q", 0, -1)]
    assert order == [f"k{n:03}" for n in range(50)], "those of one instant in their order"
    for n in range(50):
        conn.hset(f"rq:job:k{n:03}", "expires_at", 1)
        conn.zadd("rq:expiring", {f"k{n:03}": 1})
    assert [broker.expire() for _ in range(3)] == [(20, 0.0), (20, 0.0), (10, None)]
    assert conn.exists("rq:queue:q", "rq:limits:held:k") == 0


def test_keys_that_open_together_are_settled_in_turns(broker: Broker, conn: redis.Redis) -> None:
    limits = LimitBroker(conn)
    for n in range(30):
        limits.pause_limit(f"k{n}", 3600)
        named = {"ties": "k", "concurrency_key": f"k{n}", "max_concurrent": 9}
        broker.enqueue("q", [new(f"j{n}-{m}", **named) for m in range(9)], f"n{n}")
        conn.hset(f"rq:limit:k{n}", "paused", 1)
        conn.zadd("rq:limits:due", {f"k{n}": 1})
    broker.promote()
    assert conn.zcard("rq:queue:q") == 80
    while broker.promote()[1] == 0:
        pass
    assert conn.zcard("rq:queue:q") == 270
    assert faults(conn) == []


@pytest.mark.parametrize("call", ["requeue", "delete", "quarantine", "restore", "reprioritise"])
def test_a_call_for_many_jobs_is_made_of_short_ones(broker: Broker, conn: redis.Redis, call: str) -> None:
    put(broker, "q", *JOBS)
    if call in ("requeue", "quarantine"):
        hand = Hand(broker, "q")
        hand.turn(*(outcome(job, "failed", reason="r") for job in hand.claim(len(JOBS))))
    if call == "restore":
        broker.delete_to_trash(JOBS)
    ask = [*JOBS[:150], "nobody", *JOBS[150:]]
    calls = {
        "requeue": lambda: broker.requeue(ask, "n"),
        "delete": lambda: broker.delete(ask),
        "quarantine": lambda: broker.quarantine(ask, "why"),
        "restore": lambda: broker.restore(ask, "n"),
        "reprioritise": lambda: broker.reprioritise([Move(job) for job in ask], 2),
    }
    with wire(conn) as sent:
        answers = calls[call]()
    assert len(answers) == len(ask) and [n for n, answer in enumerate(answers) if answer == "missing"] == [150]
    assert sent.count("EVALSHA") + sent.count("EVAL") >= 6
    ask.clear()
    assert calls[call]() == []
