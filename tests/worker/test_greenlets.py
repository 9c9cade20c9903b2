"""Task modules that patch the standard library (gevent) are tasks like others: what one job comes to, its neighbours do not feel."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from fusion import Queue
from tests.faults.rig.conservation import check_conservation
from tests.kit.waiting import eventually
from tests.kit.witnesses import alive, field, runs_of, status_of
from tests.kit.workers import Workers, alone_in_its_process

pytestmark = pytest.mark.long

ENV = {"FUSION_TASKS": "tests.jobs.greenlets", "FUSION_TIMEOUT_GRACE": "0.3"}
HOOK = {
    "FUSION_TASKS": "tests.jobs.basic,tests.jobs.stubborn",
    "FUSION_BEFORE_FORK": "tests.jobs.greenlets.hook",
    "FUSION_TIMEOUT_GRACE": "0.3",
}
_NOT_BESIDE_OTHERS = "a module that patches the standard library is for processes of one job: docs/operations.md"
APART = pytest.mark.parametrize(
    "mode",
    [
        pytest.param(("--slots", "3"), id="process per job", marks=alone_in_its_process(_NOT_BESIDE_OTHERS)),
        pytest.param(("--horses", "3"), id="warm"),
    ],
)


@APART
def test_a_hard_timeout_ends_one_job_and_no_neighbour(
    mode: tuple[str, ...], workers: Workers, conn: redis.Redis, tmp_path: Path
) -> None:
    gate, beside_seen, seen = tmp_path / "gate", tmp_path / "beside", tmp_path / "seen"
    gate.touch()
    worker = workers.start("g", *mode, env=ENV)
    queue, server = Queue("g", conn), worker.fork_server().pid
    beside = [queue.enqueue("tests.jobs.greenlets.beside", str(gate), str(beside_seen)) for _ in range(2)]
    eventually(lambda: len(runs_of(beside_seen, "started")) == 2)
    ended = [queue.enqueue(f"tests.jobs.greenlets.{task}", str(seen), job_timeout=0.4) for task in ("waits", "swallows", "waits")]
    eventually(lambda: all(status_of(conn, job.id) == "failed" for job in ended), 20)
    assert all("JobTimeoutException" in field(conn, job.id, "exc_info") for job in ended)
    eventually(lambda: not any(alive(pid) for pid in runs_of(seen, "here")))
    gate.unlink()
    eventually(lambda: all(status_of(conn, job.id) == "finished" for job in beside))
    assert len(runs_of(beside_seen, "started")) == 2, "none ran again"
    assert worker.fork_server().pid == server, worker.output
    check_conservation(conn, [job.id for job in (*beside, *ended)])


@APART
def test_its_greenlets_threads_and_programs_work(mode: tuple[str, ...], workers: Workers, conn: redis.Redis) -> None:
    worker = workers.start("g", *mode, env=ENV)
    jobs = [Queue("g", conn).enqueue("tests.jobs.greenlets.works", 3) for _ in range(6)]
    eventually(lambda: all(status_of(conn, job.id) in ("finished", "failed") for job in jobs), 20)
    assert {field(conn, job.id, "result") for job in jobs} == {"[0,2,4,-1,0]"}, field(conn, jobs[0].id, "exc_info")
    assert "tests.jobs.greenlets replaces os.fork" in worker.output
    assert "each job's process imports it itself" in worker.output


@alone_in_its_process("among others it is refused whatever --preload says")
def test_strict_preload_refuses_it(workers: Workers, conn: redis.Redis) -> None:
    worker = workers.start("g", "--preload", "strict", ready=False, env=ENV)
    eventually(lambda: "start the worker with --preload auto" in worker.output)


@APART
def test_a_hook_that_patches_the_fork_server_itself(
    mode: tuple[str, ...], workers: Workers, conn: redis.Redis, tmp_path: Path
) -> None:
    """The exact time can't be seen; the loop that forks and kills goes on."""
    gate, seen = tmp_path / "gate", tmp_path / "seen"
    gate.touch()
    worker = workers.start("g", *mode, env=HOOK)
    queue, server = Queue("g", conn), worker.fork_server().pid
    beside = queue.enqueue("tests.jobs.basic.until_gone", str(gate), str(seen))
    eventually(lambda: runs_of(seen, "started"))
    ended = queue.enqueue("tests.jobs.stubborn.swallows", str(seen), job_timeout=0.4)
    eventually(lambda: status_of(conn, ended.id) == "failed")
    gate.unlink()
    eventually(lambda: status_of(conn, beside.id) == "finished")
    assert worker.fork_server().pid == server, worker.output
    assert len(runs_of(seen, "started")) == 1


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param((), id="process per job", marks=alone_in_its_process(_NOT_BESIDE_OTHERS)),
        pytest.param(("--horses", "1"), id="warm"),
    ],
)
def test_a_job_with_less_time_than_the_import_takes_runs_when_that_is_done(
    mode: tuple[str, ...], workers: Workers, conn: redis.Redis
) -> None:
    """A process that has read no job yet is no further on when it is killed: its successor begins the import anew."""
    workers.start("g", *mode, env={**ENV, "FUSION_TASKS": "tests.jobs.slow_greenlets"})
    jobs = [Queue("g", conn).enqueue("tests.jobs.slow_greenlets.nothing", job_timeout=0.2) for _ in range(3)]
    eventually(lambda: all(status_of(conn, job.id) in ("finished", "failed") for job in jobs), 20)
    assert {status_of(conn, job.id) for job in jobs} == {"finished"}
    assert {field(conn, job.id, "attempts") for job in jobs} == {""}, "no attempt was spent"
    check_conservation(conn, [job.id for job in jobs])


@pytest.mark.parametrize("preload", ["auto", "off"])
@pytest.mark.parametrize("executor", [pytest.param("thread", marks=pytest.mark.gate), "asyncio"])
def test_where_jobs_share_a_process_it_is_refused_with_the_reason(
    executor: str, preload: str, workers: Workers, conn: redis.Redis
) -> None:
    worker = workers.start("g", "--executor", executor, "--preload", preload, ready=False, env=ENV)
    job = Queue("g", conn).enqueue("tests.jobs.greenlets.works", 3, job_timeout=2)
    reason = "tests.jobs.greenlets replaces os.fork"
    eventually(lambda: reason in worker.output and "start the worker with --executor process or pool" in worker.output)
    eventually(lambda: worker.count("next try in") >= 2, why="it has tried again")
    eventually(lambda: status_of(conn, job.id) == "queued", why="it waits for a worker that can run it")
    assert field(conn, job.id, "attempts") == ""
    check_conservation(conn, [job.id])
