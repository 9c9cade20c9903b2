"""TERM to the whole tree, as Heroku and systemd send it: a job whose own processes died of it has not failed, and runs again."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from fusion import Queue, Retry
from tests.faults.rig.conservation import check_conservation
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, runs_of, status_of
from tests.kit.workers import WorkerProcess, Workers

pytestmark = pytest.mark.long

ENV = {"FUSION_TASKS": "tests.jobs.children"}
MODES = pytest.mark.parametrize("mode", [(), ("--horses", "1")], ids=["a process per job", "warm"])


def put(conn: redis.Redis, task: str, *args: Any, **options: Any) -> Any:
    return Queue("t", conn).enqueue(f"tests.jobs.children.{task}", *args, **options)


def strike(worker: WorkerProcess, order: str) -> None:
    """TERM to every process; the worker's own may come first or last."""
    below = [process.pid for process in worker.tree()]
    if order == "children first":
        below.reverse()
    pids = [worker.pid, *below] if order == "worker first" else [*below, worker.pid]
    for pid in pids:
        if pid == worker.pid and order != "worker first":
            time.sleep(0.4)  # on a busy host its turn comes late
        with contextlib.suppress(ProcessLookupError):  # a spare may have gone since it was listed
            os.kill(pid, signal.SIGTERM)


@MODES
@pytest.mark.parametrize("order", ["worker first", "worker last", "children first"])
@pytest.mark.parametrize("task", ["program", "pool"])
def test_it_runs_again(workers: Workers, conn: redis.Redis, tmp_path: Path, mode: tuple[str, ...], order: str, task: str) -> None:
    seen = tmp_path / "seen"
    worker = workers.start("t", *mode, env=ENV)
    job = put(conn, task, str(seen))
    eventually(lambda: runs_of(seen, "here"), 20)
    strike(worker, order)
    assert worker.wait(20) == 0
    assert (status_of(conn, job.id), field(conn, job.id, "attempts"), field(conn, job.id, "lost")) == ("queued", "", "1")
    assert "signaled with its worker" in field(conn, job.id, "reason")
    check_conservation(conn, [job.id])
    assert not psutil.pid_exists(worker.pid)


@MODES
def test_it_ends_well_the_next_time(workers: Workers, conn: redis.Redis, tmp_path: Path, mode: tuple[str, ...]) -> None:
    seen = tmp_path / "seen"
    worker = workers.start("t", *mode, env=ENV)
    job = put(conn, "program", str(seen), 1.5, retry=Retry(3, interval=3600))
    eventually(lambda: runs_of(seen, "here"), 20)
    strike(worker, "worker last")
    assert worker.wait(20) == 0
    workers.burst("t", *mode, env=ENV)
    assert (status_of(conn, job.id), field(conn, job.id, "attempts")) == ("finished", "")
    assert len(runs_of(seen, "here")) == 2


@MODES
def test_one_that_fails_by_itself_has_failed(workers: Workers, conn: redis.Redis, tmp_path: Path, mode: tuple[str, ...]) -> None:
    """A stop of the worker alone strikes nobody's processes; a signal to the job's alone stops nobody."""
    for n, signaled in enumerate(("the worker", "the job's process")):
        seen, gate = tmp_path / f"seen{n}", tmp_path / f"gate{n}"
        worker = workers.start("t", *mode, env=ENV)
        job = put(conn, "own_mistake", str(seen), str(gate))
        pids = eventually(lambda seen=seen: runs_of(seen, "here"), 20)
        os.kill(worker.pid if n == 0 else pids[0], signal.SIGTERM)
        gate.touch()
        eventually(lambda job=job: status_of(conn, job.id) == "failed", 20, why=signaled)
        assert "its own" in field(conn, job.id, "exc_info")
        worker.stop()


def test_one_that_is_to_run_once_at_most_has_failed(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    worker = workers.start("t", env=ENV)
    job = put(conn, "program", str(seen), on_lost="fail")
    eventually(lambda: runs_of(seen, "here"), 20)
    strike(worker, "worker first")
    assert worker.wait(20) == 0
    assert status_of(conn, job.id) == "failed"
    assert "CalledProcessError" in field(conn, job.id, "exc_info")


@MODES
def test_one_that_stops_its_worker_itself_ends_some_day(workers: Workers, conn: redis.Redis, mode: tuple[str, ...]) -> None:
    job = put(conn, "stops_the_worker")
    for _ in range(3):
        assert status_of(conn, job.id) in ("queued", "scheduled")
        worker = workers.start("t", *mode, env={**ENV, "FUSION_MAX_LOST": "3"}, ready=False)
        assert worker.wait(30) == 0
    assert status_of(conn, job.id) == "failed"
    assert "poison pill" in field(conn, job.id, "reason")
