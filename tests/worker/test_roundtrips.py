"""How soon an idle worker starts a job, its CPU at rest, which process imports the tasks. What else a job costs: tests/budgets."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import psutil
import pytest
import redis

from fusion import Queue
from tests.jobs import basic
from tests.kit.waiting import eventually
from tests.kit.witnesses import lines
from tests.kit.workers import Workers, process_per_job


def at_doorbell(conn: redis.Redis) -> bool:
    return any(client["cmd"] == "blpop" for client in conn.client_list())


def test_an_idle_worker_starts_a_job_at_once(workers: Workers, conn: redis.Redis) -> None:
    workers.start("sms", env={"FUSION_IDLE_WAIT": "60"})
    queue = Queue("sms")
    waits = []
    for _ in range(50):
        eventually(lambda: at_doorbell(conn), interval=0.002)
        before = time.time()
        job = queue.enqueue(basic.moment)
        assert job.wait(10) == "finished"
        waits.append((job.result - before) * 1000)
    cuts = statistics.quantiles(waits, n=100)
    print(f"enqueue -> start on an idle worker: p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.2f} ms")
    assert cuts[49] < 50


@pytest.mark.long
def test_a_worker_at_rest_takes_next_to_no_cpu(workers: Workers, conn: redis.Redis) -> None:
    worker = workers.start("--customq", "all")
    Queue("sms").enqueue(basic.noop).wait(10)
    eventually(lambda: at_doorbell(conn))

    def spent() -> float:
        resident = (psutil.Process(worker.pid), worker.fork_server())
        return sum(times.user + times.system for times in (process.cpu_times() for process in resident))

    before, begin = spent(), time.monotonic()
    time.sleep(3)  # not a wait for anything: the window of the measurement
    share = (spent() - before) / (time.monotonic() - begin)
    print(f"a worker at rest: {share:.2%} of a CPU")
    assert share < 0.02


@process_per_job("it counts a process for each job")
def test_the_worker_itself_never_imports_user_code(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    imported = tmp_path / "pids"
    worker = workers.start("sms", env={"FUSION_TASKS": "tests.jobs.gated", "GATED_WITNESS": str(imported)})
    server = worker.fork_server().pid
    jobs = [Queue("sms").enqueue("tests.jobs.gated.parent") for _ in range(5)]
    assert [job.wait(10) for job in jobs] == ["finished"] * 5
    assert [int(line) for line in lines(imported)] == [server]  # once, in the fork server
    pids = [job.result for job in jobs]
    assert {parent for _, parent in pids} == {server}
    assert len({own for own, _ in pids} - {server, worker.pid}) == 5  # a process per job


@pytest.mark.long
def test_without_preload_each_job_imports_for_itself(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    imported = tmp_path / "pids"
    env = {"FUSION_TASKS": "tests.jobs.gated", "GATED_WITNESS": str(imported), "FUSION_PRELOAD": "off"}
    worker = workers.start("sms", env=env)
    job = Queue("sms").enqueue("tests.jobs.gated.parent")
    assert job.wait(10) == "finished"
    pids = [int(line) for line in lines(imported)]
    assert job.result[0] in pids
    assert not {worker.pid, worker.fork_server().pid} & set(pids)
