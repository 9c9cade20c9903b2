"""uvloop, which is used where it is installed: what coroutines do on asyncio's own loop (test_crowd.py), on this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Job, Queue
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, runs_of, status_of
from tests.kit.workers import Workers, alone_in_its_process

pytestmark = pytest.mark.long

#: The tests' own Python has none, as it would take the place of asyncio's loop in all of them.
VERSION = "uvloop>=0.21,<1"
ENV = {"FUSION_TASKS": "tests.jobs.crowd", "FUSION_TIMEOUT_GRACE": "0.5"}
ALONE = alone_in_its_process("the tests above are of those")


@pytest.fixture(scope="module")
def uvloop_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("uvloop")
    had = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-compile",
            "--target",
            home,
            VERSION,
        ],
        capture_output=True,
        text=True,
        timeout=50,
    )
    if had.returncode:
        pytest.skip(f"uvloop can't be installed here: {had.stderr.strip().splitlines()[-1]}")
    return home


def test_jobs_run_are_struck_and_are_killed_as_on_the_loop_of_asyncio(
    uvloop_home: Path, workers: Workers, conn: redis.Redis, tmp_path: Path
) -> None:
    path = os.pathsep.join(filter(None, [str(uvloop_home), os.environ.get("PYTHONPATH", "")]))
    workers.start("c", "--executor", "asyncio", env={**ENV, "PYTHONPATH": path})
    queue, seen = Queue("c", conn), tmp_path / "seen"

    def enqueue(task: str, *args: Any, **options: Any) -> Job:
        return queue.enqueue_call(f"tests.jobs.crowd.{task}", args, **options)

    def end(jobs: list[Job], status: str) -> None:
        eventually(lambda: {status_of(conn, job.id) for job in jobs} == {status}, why=f"all are {status}")

    which = enqueue("which_loop")
    end([which], "finished")
    assert which.result == "uvloop"

    mixed = [enqueue(task, str(seen), 0.2) for task in ("nap", "plain_nap") * 20]
    end(mixed, "finished")

    late, stopped, beside = (
        enqueue("nap", str(seen), 30, timeout=1, retry=None),
        enqueue("nap", str(seen), 30),
        enqueue("nap", str(seen), 3),
    )
    eventually(lambda: len(runs_of(seen, "begun")) >= 43, why="the three have begun")
    stopped.stop()
    end([stopped], "stopped")
    end([late], "failed")
    end([beside], "finished")
    assert field(conn, late.id, "error_class") == "fusion.exceptions.JobTimeoutException"
    assert len(set(runs_of(seen, "begun"))) == 1

    os.kill(runs_of(seen, "begun")[0], signal.SIGKILL)
    after = enqueue("nap", str(seen), 0)
    end([after], "finished")


@pytest.mark.parametrize("mode", [pytest.param(("--slots", "3"), marks=ALONE), ("--horses", "3")], ids=["process", "pool"])
def test_tasks_that_run_it_themselves_are_struck_as_on_the_loop_of_asyncio(
    mode: tuple[str, ...], uvloop_home: Path, workers: Workers, conn: redis.Redis, tmp_path: Path
) -> None:
    path = os.pathsep.join(filter(None, [str(uvloop_home), os.environ.get("PYTHONPATH", "")]))
    worker = workers.start("c", *mode, env={**ENV, "FUSION_TIMEOUT_GRACE": "20", "PYTHONPATH": path})
    queue, seen = Queue("c", conn), tmp_path / "seen"
    late = {
        how: queue.enqueue_call("tests.jobs.crowd.on_uvloop", (str(seen), how), timeout=1, retry=None)
        for how in ("sleeps", "computes")
    }
    stopped = queue.enqueue_call("tests.jobs.crowd.on_uvloop", (str(seen), "sleeps"), retry=None)
    eventually(lambda: len(runs_of(seen, "begun")) == 3, 20, why="all have begun")
    stopped.stop()
    eventually(lambda: status_of(conn, stopped.id) == "stopped", why="it is stopped")
    for how, job in late.items():
        eventually(lambda job=job: status_of(conn, job.id) == "failed", why=f"it is over, which {how}")
        assert field(conn, job.id, "error_class") == "fusion.exceptions.JobTimeoutException"
        assert "in on_uvloop" in field(conn, job.id, "exc_info")
    assert len(runs_of(seen, "cleaned")) == 3, "each ran its `finally`"
    assert "Exception in callback" not in worker.output
