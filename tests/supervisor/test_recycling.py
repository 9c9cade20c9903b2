"""Limits after which a worker ends by itself; under a supervisor a fresh one comes at once, and no job notices."""

from __future__ import annotations

import signal
import time
from collections import Counter
from math import ceil
from pathlib import Path

import pytest
import redis

from fusion import Queue
from tests.faults.rig.conservation import check_conservation
from tests.kit.waiting import eventually, unhurried
from tests.kit.witnesses import alive, field, status_of
from tests.kit.workers import Workers
from tests.supervisor.conftest import Gate
from tests.supervisor.harness import Services


@pytest.mark.long
@pytest.mark.parametrize("slots", [1, 3])
def test_max_jobs_under_load(services: Services, conn: redis.Redis, slots: int) -> None:
    queue = Queue("s", conn)
    jobs = [queue.enqueue("tests.jobs.basic.noop") for _ in range(30)]
    service = services.start(2, "s", "--max-jobs", "5", "--slots", str(slots), ready=False)
    eventually(lambda: all(status_of(conn, job.id) == "finished" for job in jobs), 30, why="all jobs ran")
    served = Counter(field(conn, job.id, "worker_name") for job in jobs)
    assert max(served.values()) <= 5
    assert len(served) >= 6
    service.wait_ready(2)
    assert service.count("warm shutdown (it took 5 jobs, --max-jobs)") >= len(served) - 2
    assert "ProcessExitError" not in service.output
    assert not [job.id for job in jobs if field(conn, job.id, "deliveries") != "1"]
    check_conservation(conn, [job.id for job in jobs])
    service.signal(signal.SIGTERM)
    service.ended(0)
    assert conn.smembers("rq:workers") == set()


def test_max_jobs_of_a_worker_alone(workers: Workers, conn: redis.Redis) -> None:
    queue = Queue("s", conn)
    jobs = [queue.enqueue("tests.jobs.basic.noop") for _ in range(5)]
    worker = workers.start("s", "--max-jobs", "3", "--slots", "2", ready=False)
    assert worker.wait() == 0
    assert [status_of(conn, job.id) for job in jobs] == ["finished"] * 3 + ["queued"] * 2
    assert "warm shutdown (it took 3 jobs, --max-jobs)" in worker.output


@pytest.mark.long
def test_max_idle_time_counts_from_the_last_job(workers: Workers, conn: redis.Redis, gate: Gate) -> None:
    job = gate.enqueue()
    worker = workers.start("s", "--max-idle-time", "0.5")
    gate.begun(job)
    begun = time.monotonic()
    eventually(lambda: time.monotonic() - begun > 1.2, why="longer than the limit, but not idle")
    assert worker.process.poll() is None
    gate.open()
    assert worker.wait() == 0
    assert status_of(conn, job.id) == "finished"
    assert "--max-idle-time" in worker.output


@pytest.mark.long
def test_max_age_lets_the_running_job_end(workers: Workers, conn: redis.Redis, gate: Gate) -> None:
    job = gate.enqueue()
    age = ceil(unhurried(2))  # long enough for its job to begin
    worker = workers.start("s", "--max-age", str(age), ready=False)
    gate.begun(job)
    worker.says(f"warm shutdown (its time is over, --max-age {age})", timeout=age + 15)
    assert worker.process.poll() is None
    gate.open()
    assert worker.wait() == 0
    assert status_of(conn, job.id) == "finished"


@pytest.mark.long
def test_max_memory_counts_the_worker_and_its_fork_server(workers: Workers, conn: redis.Redis) -> None:
    queue = Queue("s", conn)
    worker = workers.start("s", "--max-memory", "1")
    assert worker.process.poll() is None, "a fresh one is left alone: the next would be no smaller"
    job = queue.enqueue("tests.jobs.basic.noop")
    assert worker.wait() == 0
    assert status_of(conn, job.id) == "finished"
    assert "MiB, --max-memory 1)" in worker.output


@pytest.mark.long
def test_a_fork_server_that_grows_is_replaced(workers: Workers, conn: redis.Redis, tmp_path: Path, gate: Gate) -> None:
    leak = tmp_path / "leak"
    env = {"FUSION_TASKS": "tests.jobs.basic,tests.supervisor.leaky", "FUSION_FORKSERVER_GROWTH": "16", "TEST_LEAK": str(leak)}
    worker = workers.start("s", "--slots", "2", env=env)
    first = worker.fork_server()
    running = gate.enqueue()
    gate.begun(running)
    leak.touch()
    queue = Queue("s", conn)

    def grown() -> bool:
        queue.enqueue("tests.supervisor.leaky.noop")
        return "has grown from" in worker.output

    eventually(grown, 10, interval=0.05)
    leak.unlink()
    eventually(lambda: worker.output.count("ready for jobs") >= 2, why="the new fork server is ready")
    after = queue.enqueue("tests.supervisor.leaky.noop")
    eventually(lambda: status_of(conn, after.id) == "finished")
    assert alive(first.pid), "its job still runs"
    gate.open()
    eventually(lambda: status_of(conn, running.id) == "finished")
    eventually(lambda: not alive(first.pid), why="the old fork server has gone")
    assert len(gate.pids(running)) == 1
    assert worker.process.poll() is None
