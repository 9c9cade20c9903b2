"""Jobs that share a call, or wait for that, amid all that may come over a worker."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Job, Queue, Retry
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.jobs import gathering
from tests.kit.private_redis import PrivateRedis
from tests.kit.promises import claim
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, lines, losses_of, status_of
from tests.kit.workers import Workers

ENV = {"FUSION_TASKS": "tests.jobs.gathering", "FUSION_TIMEOUT_GRACE": "0.5"}


class Calls:
    """Jobs of a call that begins with the fifth, or, where it has a `wait`, this many seconds after the first."""

    def __init__(self, conn: redis.Redis, directory: Path) -> None:
        self.conn, self.seen, self.gate = conn, directory / "seen", directory / "gate"
        self._depth = 0

    def put(self, count: int = 2, wait: float | None = None, gate: Any = "", **options: Any) -> list[Job]:
        if wait is not None:
            with self.kept_back():  # a worker must not claim one before all have the same mark
                return self._put(count, wait, gate, **options)
        return self._put(count, wait, gate, **options)

    @contextmanager
    def kept_back(self) -> Iterator[None]:
        """Nobody claims any of those that are put here before all are there."""
        broker = Broker(self.conn)
        self._depth += 1
        broker.pause("g")
        yield
        self._depth -= 1
        if not self._depth:
            broker.unpause("g")

    def _put(self, count: int, wait: float | None, gate: Any, **options: Any) -> list[Job]:
        jobs = [Queue("g", self.conn).enqueue_call(gathering.patient, (str(self.seen), gate), **options) for _ in range(count)]
        if wait is not None:
            for job in jobs:
                self.conn.hset(f"rq:job:{job.id}", "gather", f"5 {wait:g}")
        return jobs

    def sizes(self, job: Job) -> list[str]:
        """Of each call that it was given to."""
        return [line.split()[0].removeprefix("of:") for line in lines(self.seen) if line.split()[1] == job.id]

    def all_are(self, jobs: list[Job], status: str, timeout: float = 20) -> None:
        eventually(lambda: {status_of(self.conn, job.id) for job in jobs} == {status}, timeout, why=f"they are {status}")

    def unharmed(self, jobs: list[Job], size: int) -> None:
        """All have run once, in a call of this many."""
        assert [self.sizes(job) for job in jobs] == [[str(size)]] * len(jobs)
        assert {(field(self.conn, job.id, "attempts"), losses_of(self.conn, job.id)) for job in jobs} == {("", 0)}
        check_conservation(self.conn, [job.id for job in jobs])


@pytest.fixture
def calls(conn: redis.Redis, tmp_path: Path) -> Calls:
    return Calls(conn, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("how", ["quiet", "suspend", "pause"])
def test_nothing_is_taken_for_a_call_once_no_jobs_are_to_be_taken(workers: Workers, calls: Calls, how: str) -> None:
    """It begins with those it has."""
    worker, broker = workers.start("g", env=ENV), Broker(calls.conn)
    jobs = calls.put()
    calls.all_are(jobs, "started")
    if how == "quiet":
        worker.signal(signal.SIGTSTP)
        worker.says("quiet: running jobs go on")
    else:
        broker.suspend() if how == "suspend" else broker.pause("g")
    late = calls.put(1)
    calls.all_are(jobs, "finished")
    assert status_of(calls.conn, late[0].id) == "queued"
    calls.unharmed(jobs, 2)


def test_a_call_that_waits_gives_its_slot_to_a_job_that_must_not(workers: Workers, calls: Calls) -> None:
    """And comes back to wait; one of its jobs that is stopped meanwhile ends at once, the first of them, too."""
    workers.start("g", "h", env=ENV)
    jobs = calls.put(4)
    calls.all_are(jobs, "started")
    high = Queue("h", calls.conn).enqueue_call(gathering.flaky, priority="high")
    eventually(lambda: field(calls.conn, high.id, "attempts") == "1" or status_of(calls.conn, high.id) == "finished", 5)
    calls.all_are(jobs, "started")
    assert jobs[0].stop() == "pending"
    calls.all_are(jobs[:1], "stopped", 5)
    jobs = [*jobs[1:], *calls.put(2)]
    calls.all_are(jobs, "finished")
    calls.unharmed(jobs, 5)


@pytest.mark.parametrize("limit", [("--max-jobs", "3"), ("--max-idle-time", "0.1")], ids=lambda limit: limit[0])
def test_a_worker_whose_time_is_over_by_a_limit_runs_what_waits(workers: Workers, calls: Calls, limit: tuple[str, str]) -> None:
    jobs = calls.put(4, wait=0.4)
    assert workers.start("g", *limit, ready=False, env=ENV).wait(15) == 0
    size = 3 if limit[0] == "--max-jobs" else 4
    calls.unharmed(jobs[:size], size)
    assert [status_of(calls.conn, job.id) for job in jobs] == ["finished"] * size + ["queued"] * (4 - size)


@pytest.mark.long
def test_leases_are_renewed_while_they_wait(workers: Workers, calls: Calls) -> None:
    env = {**ENV, "FUSION_LEASE": "1", "FUSION_REAP_INTERVAL": "0.2"}
    workers.start("g", env=env)
    jobs = calls.put(3, wait=3)
    calls.all_are(jobs, "started")
    workers.start("g", env=env)
    calls.all_are(jobs, "finished")
    calls.unharmed(jobs, 3)
    assert {field(calls.conn, job.id, "deliveries") for job in jobs} == {"1"}


@pytest.mark.long
def test_a_reload_harms_neither_a_call_that_runs_nor_one_that_waits(workers: Workers, calls: Calls) -> None:
    worker = workers.start("g", "--slots", "2", env=ENV)
    calls.gate.touch()
    runs = calls.put(5, gate=str(calls.gate))
    eventually(lambda: calls.sizes(runs[0]), why="it runs")
    waits = calls.put(3)
    calls.all_are(waits, "started")
    worker.signal(signal.SIGHUP)
    worker.says("is ready for jobs", 2)
    calls.gate.unlink()
    waits += calls.put(2)
    calls.all_are([*runs, *waits], "finished")
    calls.unharmed([*runs, *waits], 5)


@pytest.mark.long
@pytest.mark.parametrize("while_it", ["runs", "waits"])
def test_redis_may_be_away(private_redis: PrivateRedis, private_workers: Workers, tmp_path: Path, while_it: str) -> None:
    calls = Calls(private_redis.conn, tmp_path)
    private_workers.start("g", env=ENV)
    calls.gate.touch()
    jobs = calls.put(5 if while_it == "runs" else 3, wait=1, gate=str(calls.gate))
    calls.all_are(jobs, "started")
    if while_it == "runs":
        eventually(lambda: calls.sizes(jobs[4]), why="it runs")
    private_redis.pause()
    calls.gate.unlink()
    eventually(lambda: all(map(calls.sizes, jobs)), why="it ran")
    time.sleep(0.5)
    private_redis.resume()
    calls.all_are(jobs, "finished")
    calls.unharmed(jobs, len(jobs))


@pytest.mark.long
def test_one_that_needs_too_much_memory_answers_for_it_alone(workers: Workers, calls: Calls) -> None:
    workers.start("g", "--max-job-memory", "150", env=ENV)
    with calls.kept_back():
        jobs = calls.put(2, wait=0) + (greedy := calls.put(1, wait=0, gate=-300.0, retry=None)) + calls.put(1, wait=0)
    calls.all_are(greedy, "failed")
    assert "JobMemoryExceeded" in field(calls.conn, greedy[0].id, "exc_info")
    others = [job for job in jobs if job not in greedy]
    calls.all_are(others, "finished")
    assert [calls.sizes(job) for job in jobs] == [["4"], ["4"], ["4", "1"], ["4", "1"]]


@claim("P8")
@pytest.mark.long
def test_a_call_has_the_time_of_the_most_urgent_of_its_jobs_and_each_alone_its_own(workers: Workers, calls: Calls) -> None:
    workers.start("g", env=ENV)
    with calls.kept_back():
        jobs = calls.put(1, wait=0.3, gate=1.5, timeout=20) + calls.put(1, wait=0.3, timeout=1)
    calls.all_are(jobs, "finished")
    assert [calls.sizes(job) for job in jobs] == [["2", "1"]] * 2
    assert {(field(calls.conn, job.id, "attempts"), losses_of(calls.conn, job.id)) for job in jobs} == {("", 0)}


def test_retries_and_callbacks_are_each_ones_own(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    queue, seen = Queue("g", conn), tmp_path / "seen"
    jobs = [
        queue.enqueue_call(gathering.flaky, (n, str(seen)), retry=Retry(max=1), on_success=gathering.called) for n in range(3)
    ]
    fails = queue.enqueue_call(gathering.flaky, (9, str(seen)), retry=Retry(max=0), on_failure=gathering.failed)
    workers.burst("g", env=ENV)
    assert [status_of(conn, job.id) for job in (*jobs, fails)] == ["finished"] * 3 + ["failed"]
    assert [field(conn, job.id, "attempts") for job in (*jobs, fails)] == ["1"] * 4
    assert sorted(line.rsplit(" ", 1)[0] for line in lines(seen)) == sorted(f"called:{job.id} {job.id}" for job in (*jobs, fails))
