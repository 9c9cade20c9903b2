"""Tasks that use multiprocessing, in both modes."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import redis

from fusion import Queue
from tests.faults.rig.conservation import check_conservation
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, status_of
from tests.kit.workers import Workers

ENV = {"FUSION_TASKS": "tests.jobs.offspring"}


@pytest.mark.long
@pytest.mark.parametrize("mode", [("--slots", "2"), ("--horses", "2")], ids=["process per job", "warm"])
def test_pools_end_and_processes_can_be_terminated(mode: tuple[str, ...], workers: Workers, conn: redis.Redis) -> None:
    workers.start("m", *mode, env=ENV)
    queue = Queue("m", conn)
    pools = [queue.enqueue("tests.jobs.offspring.pool", 6, job_timeout=30) for _ in range(8)]
    ended = queue.enqueue("tests.jobs.offspring.terminated", "fork", job_timeout=30)
    eventually(lambda: all(status_of(conn, job.id) in ("finished", "failed") for job in (*pools, ended)), 45)
    assert [(status_of(conn, job.id), field(conn, job.id, "result")) for job in pools] == [("finished", "42")] * 8
    assert field(conn, ended.id, "result") == "-15"
    check_conservation(conn, [job.id for job in (*pools, ended)])


EXECUTORS = {
    "process": ("--slots", "2"),
    "pool": ("--horses", "2"),
    "thread": ("--executor", "thread", "--threads", "2"),
    "asyncio": ("--executor", "asyncio", "--concurrency", "2"),
}
#: How a program ends that does the same: its exit code.
ENDS = {"return": 0, "exit": 3, "message": 1, "raise": 1, "meta": 1, "interrupt": -signal.SIGINT, "finish": 0}


@pytest.mark.long
@pytest.mark.parametrize("executor", ["process", "pool", "thread", pytest.param("asyncio", marks=pytest.mark.gate)])
def test_a_child_that_comes_back_from_the_task_ends_as_a_program_does(
    executor: str, workers: Workers, conn: redis.Redis, tmp_path: Path
) -> None:
    worker = workers.start("m", *EXECUTORS[executor], env={**ENV, "FUSION_RESULT_TTL": "600"})
    queue = Queue("m", conn)
    jobs = {
        (task, how): queue.enqueue(f"tests.jobs.offspring.{task}", how, str(tmp_path / f"{task}.{how}"), job_timeout=10)
        for task in ("ends", "ends_on_loop")
        for how in ENDS
    }
    called = queue.enqueue_call("tests.jobs.offspring.ends", ("return",), on_success="tests.jobs.offspring.calls_back")
    ids = [job.id for job in (*jobs.values(), called)]
    eventually(lambda: all(status_of(conn, found) in ("finished", "failed") for found in ids), 30)
    assert {key: field(conn, job.id, "result") for key, job in jobs.items()} == {key: str(ENDS[key[1]]) for key in jobs}
    for task in ("ends", "ends_on_loop"):
        assert (tmp_path / f"{task}.finish").read_text() == "at exit"
        assert (tmp_path / f"{task}.finish.thread").is_dir(), "the child waits for the threads that it has started"
    assert worker.count("raised in a forked child") == 2
    assert worker.count("a message of a forked child") == 2
    assert worker.count("written by a forked child") == 2
    assert worker.count("Traceback") >= 2
    assert json.loads(field(conn, called.id, "meta"))["code"] == 3
    check_conservation(conn, ids)


@pytest.mark.long
def test_a_child_that_awaits_runs_none_of_the_jobs_beside_it(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    """Its loop is a copy of the one that they run on."""
    worker = workers.start("m", "--executor", "asyncio", "--concurrency", "20", env=ENV)
    queue, ticked, over = Queue("m", conn), tmp_path / "ticked", tmp_path / "over"
    beside = [queue.enqueue("tests.jobs.offspring.ticks", str(ticked), str(over), job_timeout=30) for _ in range(10)]
    eventually(lambda: ticked.exists() and len(ticked.read_text().splitlines()) > 20)
    forks = [
        queue.enqueue("tests.jobs.offspring.forks_and_awaits", str(tmp_path / f"went on {n}"), job_timeout=10) for n in range(3)
    ]
    eventually(lambda: all(status_of(conn, job.id) in ("finished", "failed") for job in forks), 20)
    over.touch()
    eventually(lambda: all(status_of(conn, job.id) == "finished" for job in beside))
    assert len(set(ticked.read_text().splitlines())) == 1, "no child ran them"
    assert [field(conn, job.id, "result") for job in forks] == ["1"] * 3
    assert not list(tmp_path.glob("went on*"))
    assert worker.count("no running event loop") == 3, "Python writes a traceback piece by piece, here three at once"
    check_conservation(conn, [job.id for job in (*beside, *forks)])
