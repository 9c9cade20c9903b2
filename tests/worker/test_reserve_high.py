"""`--reserve-high`: slots that only HIGH jobs get, so that an OTP starts at once while campaigns hold the rest."""

from __future__ import annotations

import logging
import statistics
from pathlib import Path

import pytest
import redis

from fusion import PriorityQueue, Queue
from fusion.exceptions import ConfigurationError
from fusion.kernel.memory import Bound, MemoryThrottle
from fusion.settings import Settings
from fusion.worker.admission import Admission
from tests.cli.conftest import run_worker
from tests.jobs import basic
from tests.kit.waiting import eventually
from tests.kit.witnesses import runs_of, status_of
from tests.kit.workers import Workers
from tests.worker.test_quiet import ENV, waiting

LOG = logging.getLogger("fusion.worker")
HIGH, MODERATE, LOW = PriorityQueue.PRIORITY_HIGH, PriorityQueue.PRIORITY_MODERATE, PriorityQueue.PRIORITY_LOW


@pytest.mark.parametrize(
    ("slots", "reserve", "running", "floors"),
    [
        (4, 0, 1, [0, 0, 0]),
        (4, 1, 0, [0, 0, 0, 2]),
        (4, 1, 2, [0, 2]),
        (4, 1, 3, [2]),  # whatever runs in the three, HIGH too: one stays free
        (4, 1, 4, []),
        (4, 4, 0, [2, 2, 2, 2]),
        (2, 2, 1, [2]),
        (4, 3, 1, [2, 2, 2]),
    ],
)
def test_what_a_free_slot_may_take(slots: int, reserve: int, running: int, floors: list[int]) -> None:
    assert Admission(slots, reserve, None, LOG).floors(slots - running, running) == floors


def test_fewer_spare_processes_than_slots_are_not_taken_from_the_reserve() -> None:
    assert Admission(4, 2, None, LOG).floors(2, 1) == [0, 2]
    assert Admission(4, 2, None, LOG).floors(1, 2) == [2]


def test_nothing_while_memory_is_scarce() -> None:
    throttle = MemoryThrottle([Bound("RAM", 90, 80, lambda: 95.0)], 5)
    throttle.check(0)
    assert Admission(4, 1, throttle, LOG).floors(4, 0) == []


def test_more_than_there_are_slots_is_a_usage_error(redis_url: str) -> None:
    done = run_worker("worker", "sms", "--slots", "2", "--reserve-high", "3", FUSION_REDIS_URL=redis_url)
    assert done.returncode == 2
    assert "setting reserve_high = 3 (from flag --reserve-high) is not valid: there are 2 slots" in done.stderr
    with pytest.raises(ConfigurationError):
        Settings(reserve_high=2)
    assert Settings(slots=2, reserve_high=2).reserve_high == 2


@pytest.mark.long
def test_high_jobs_start_at_once_beside_long_ones(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    gate, seen = tmp_path / "gate", tmp_path / "seen"
    gate.touch()
    workers.start("sms", "--slots", "4", "--reserve-high", "1", "--disable-job-desc-logging", env=ENV)
    queue = Queue("sms")
    low = [queue.enqueue(basic.until_gone, str(gate), str(seen), priority=LOW) for _ in range(6)]
    eventually(lambda: len(runs_of(seen, "started")) == 3)
    queue.enqueue(basic.moment, priority=HIGH).wait(10)
    lags = []
    for _ in range(100):
        seconds, micros = conn.time()
        job = queue.enqueue(basic.moment, priority=HIGH)
        assert job.wait(10) == "finished"
        lags.append((job.result - seconds - micros / 1e6) * 1000)
    lags.sort()
    print(f"HIGH beside LOW: median {statistics.median(lags):.1f} ms, p99 {lags[98]:.1f} ms (goal 20), max {lags[-1]:.1f} ms")
    assert lags[98] < 200
    assert len(runs_of(seen, "started")) == 3  # the fourth slot never took one
    gate.unlink()
    assert [job.wait(10) for job in low] == ["finished"] * 6


@pytest.mark.long
def test_low_jobs_are_left_to_another_worker_at_once(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    """A worker with nothing but reserved slots does not swallow the tokens that are for others."""
    gate, seen = tmp_path / "gate", tmp_path / "seen"
    gate.touch()
    queue = Queue("sms")
    first = workers.start("sms", "--slots", "2", "--reserve-high", "1", env=ENV)
    eventually(lambda: waiting(conn) == 2)
    holding = queue.enqueue(basic.until_gone, str(gate), str(seen), priority=LOW)
    eventually(lambda: runs_of(seen, "started"))
    other = workers.start("sms", env=ENV)
    eventually(lambda: waiting(conn) >= 2)
    jobs = []
    for _ in range(10):
        jobs.append(queue.enqueue(basic.noop, priority=LOW))
        assert jobs[-1].wait(10) == "finished"
    assert all(job.worker_name.endswith(f".{other.pid}") for job in jobs)
    assert first.pid != other.pid
    gate.unlink()
    assert holding.wait(10) == "finished"


def test_a_freed_slot_is_found_by_low_jobs_again(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    """The wait for HIGH jobs that is under way does not keep the worker from the other bell."""
    gate, seen = tmp_path / "gate", tmp_path / "seen"
    gate.touch()
    queue = Queue("sms")
    workers.start("sms", "--slots", "2", "--reserve-high", "1", env=ENV)
    holding = queue.enqueue(basic.until_gone, str(gate), str(seen), priority=LOW)
    eventually(lambda: runs_of(seen, "started"))
    eventually(lambda: waiting(conn) >= 1)
    gate.unlink()
    assert holding.wait(10) == "finished"
    assert queue.enqueue(basic.noop, priority=LOW).wait(10) == "finished"


def test_a_worker_for_high_only(workers: Workers, conn: redis.Redis) -> None:
    queue = Queue("sms")
    low = [queue.enqueue(basic.noop, priority=priority) for priority in (LOW, MODERATE)]
    workers.start("sms", "--slots", "2", "--reserve-high", "2", env=ENV)
    high = [queue.enqueue(basic.noop, priority=priority) for priority in (HIGH, HIGH + 5, HIGH)]
    assert [job.wait(10) for job in high] == ["finished"] * 3
    assert [status_of(conn, job.id) for job in low] == ["queued"] * 2
