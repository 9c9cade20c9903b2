"""The slowest run and the peak memory of a function, as workers of each kind measure them."""

from __future__ import annotations

import pytest
import redis

from fusion import Queue, Retry
from fusion.store.read.inspector import Inspector
from tests.jobs import basic, gathering, greedy
from tests.kit.workers import Workers

ENV = {"FUSION_TASKS": "tests.jobs.basic,tests.jobs.greedy,tests.jobs.gathering"}
NOOP, HOLD = "tests.jobs.basic.noop", "tests.jobs.greedy.hold_for"
MIB = 1024 * 1024


def most(conn: redis.Redis, function: str) -> tuple[float, int | None]:
    """Seconds and bytes."""
    _, hours = Inspector(conn).function_history(function, 3600)
    peaks = [hour.peak for hour in hours if hour.peak is not None]
    return max(hour.slowest or 0.0 for hour in hours), max(peaks, default=None)


def put(conn: redis.Redis, *, isolate: bool = False) -> None:
    """A small job, a slow one that takes 50 MiB more, and a small one after it."""
    queue = Queue("q", conn)
    queue.enqueue(basic.noop, isolate=isolate)
    queue.enqueue(greedy.hold_for, 50, 0.3, isolate=isolate)
    queue.enqueue(basic.noop, isolate=isolate)


def check(conn: redis.Redis) -> None:
    (quick, little), (slow, much) = most(conn, NOOP), most(conn, HOLD)
    assert quick > 0 and slow >= 0.3
    assert little and much and 45 * MIB < much - little < 100 * MIB


@pytest.mark.parametrize("mode", [("--executor", "process"), ("--horses", "1")], ids=["process", "pool"])
def test_a_process_of_its_own_and_a_warm_one_that_grew(mode: tuple[str, ...], workers: Workers, conn: redis.Redis) -> None:
    """The small job after the large one has the same warm process, and is not said to take that much."""
    put(conn)
    workers.burst("q", *mode, env=ENV)
    check(conn)


@pytest.mark.parametrize("executor", ["thread", "asyncio"])
def test_a_process_for_many_tells_no_memory_but_that_of_a_job_alone(executor: str, workers: Workers, conn: redis.Redis) -> None:
    put(conn)
    workers.burst("q", "--executor", executor, env=ENV)
    (quick, little), (slow, much) = most(conn, NOOP), most(conn, HOLD)
    assert quick > 0 and slow >= 0.3
    assert (little, much) == (None, None)
    put(conn, isolate=True)
    for number in range(2):
        Queue("q", conn).enqueue_call(gathering.send, (number,))
    workers.burst("q", "--executor", executor, env=ENV)
    check(conn)
    assert most(conn, "tests.jobs.gathering.send")[1], "of a batched call"


@pytest.mark.parametrize("mode", [("--executor", "process"), ("--horses", "1")], ids=["process", "pool"])
def test_a_process_that_dies_counts_too(mode: tuple[str, ...], workers: Workers, conn: redis.Redis) -> None:
    queue = Queue("q", conn)
    queue.enqueue(basic.noop)
    queue.enqueue(greedy.hold_for, 50, 0.3, 3, retry=Retry(max=0))
    workers.burst("q", *mode, env=ENV)
    check(conn)
