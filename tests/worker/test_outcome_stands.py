"""A task that has ended does not run again, whatever its callback or a hook does to the process: its outcome stands before they begin."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import redis

from fusion import Queue
from fusion.callbacks import Callback
from tests.faults.rig.conservation import check_conservation
from tests.jobs import standing
from tests.kit.hands import events_of
from tests.kit.length import long_case
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, runs_of, status_of
from tests.kit.workers import WorkerProcess, Workers

TASKS = "tests.jobs.standing."
ENV = {"FUSION_TASKS": "tests.jobs.standing", "FUSION_TIMEOUT_GRACE": "0.5", "FUSION_NEIGHBOUR_GRACE": "1"}
OF_EXECUTOR = {
    "process": ("--slots", "2"),
    "pool": ("--horses", "2"),
    "thread": ("--executor", "thread", "--threads", "4", "--horses", "1"),
    "asyncio": ("--executor", "asyncio", "--horses", "1"),
}


def _start(workers: Workers, executor: str, hook: str = "") -> WorkerProcess:
    env = ENV | ({"FUSION_MIDDLEWARE": f"tests.jobs.standing.{hook}"} if hook else {})
    return workers.start("c", *OF_EXECUTOR[executor], env=env)


def _ends_once(
    worker: WorkerProcess, conn: redis.Redis, seen: Path, task: str, status: str, said: str, **options: object
) -> None:
    job = Queue("c", conn).enqueue_call(TASKS + task, (str(seen),), **options)
    eventually(lambda: status_of(conn, job.id) in ("finished", "failed"), 20, why="it has ended")
    about = f"{task} {options}\n{worker.output}"
    assert (status_of(conn, job.id), len(runs_of(seen, "ran", job.id))) == (status, 1), about
    assert said in field(conn, job.id, "callback_error"), about
    assert [event["event"] for event in events_of(conn, job.id)] == [
        "queued",
        "processing",
        "completed" if status == "finished" else "failed",
    ], about
    if status == "finished":
        assert json.loads(field(conn, job.id, "result")) == "done"
    check_conservation(conn, [job.id])


@pytest.mark.parametrize(
    ("executor", "task", "key", "limit", "status"),
    [
        ("thread", "late", "on_failure", 60, "failed"),
        long_case("thread", "returns", "on_success", 1, "finished"),
        long_case("asyncio", "late", "on_failure", 60, "failed"),
        long_case("asyncio", "awaits", "on_success", 1, "finished"),
        long_case("process", "returns", "on_success", 1, "finished"),
        long_case("pool", "returns", "on_success", 1, "finished"),
    ],
)
def test_a_callback_that_blocks_in_c(
    workers: Workers, conn: redis.Redis, tmp_path: Path, executor: str, task: str, key: str, limit: float, status: str
) -> None:
    """A timeout that was raised in a thread, the task's or the callback's, has its process killed."""
    options = {key: Callback(TASKS + "blocks", limit), "timeout": 1}
    worker = _start(workers, executor)
    _ends_once(worker, conn, tmp_path / "seen", task, status, f"{key}: fusion.exceptions.", **options)


@pytest.mark.long
@pytest.mark.parametrize("executor", ["thread", "asyncio"])
def test_a_hook_that_blocks_in_c(workers: Workers, conn: redis.Redis, tmp_path: Path, executor: str) -> None:
    """As one that closes a connection to a database does."""
    worker = _start(workers, executor, "Blocking")
    _ends_once(worker, conn, tmp_path / "seen", "late", "failed", "middleware: fusion.exceptions.", timeout=1)


@pytest.mark.parametrize("executor", OF_EXECUTOR)
def test_a_callback_that_ends_its_process(workers: Workers, conn: redis.Redis, tmp_path: Path, executor: str) -> None:
    """In each way, one after the other in one worker. After a failure it is no second one."""
    worker, seen = _start(workers, executor), tmp_path / "seen"
    task = "awaits" if executor == "asyncio" else "returns"
    for callback in ("exits", "is_killed", "crashes"):
        said = "on_success: fusion.exceptions.WorkHorseTerminated: its process "
        _ends_once(worker, conn, seen, task, "finished", said, on_success=TASKS + callback)
    said = "on_failure: fusion.exceptions.WorkHorseTerminated: its process "
    _ends_once(worker, conn, seen, "raises", "failed", said, on_failure=TASKS + "is_killed")


@pytest.mark.parametrize("executor", ["process", long_case("pool"), "thread", long_case("asyncio")])
def test_a_hook_that_ends_its_process(workers: Workers, conn: redis.Redis, tmp_path: Path, executor: str) -> None:
    said = "middleware: fusion.exceptions.WorkHorseTerminated: its process was killed by SIGKILL"
    _ends_once(_start(workers, executor, "Killing"), conn, tmp_path / "seen", "returns", "finished", said)


@pytest.mark.long
def test_a_callback_of_one_that_shares_a_call(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    """They come when the call is over: that of the first ends the process, and none of the jobs runs again."""
    seen = tmp_path / "seen"
    queue = Queue("c", conn)
    jobs = [queue.enqueue(standing.together, str(seen), on_success=TASKS + "exits") for _ in range(2)]
    jobs.append(queue.enqueue(standing.together, str(seen)))
    worker = _start(workers, "process")
    eventually(lambda: {status_of(conn, job.id) for job in jobs} == {"finished"}, 20, why="all have ended")
    assert [len(runs_of(seen, "ran", job.id)) for job in jobs] == [1, 1, 1], worker.output
    assert all("its process exited with code 0" in field(conn, job.id, "callback_error") for job in jobs[:2])
    check_conservation(conn, [job.id for job in jobs])


@pytest.mark.long
@pytest.mark.parametrize("executor", OF_EXECUTOR)
def test_a_cold_end_amid_a_callback(workers: Workers, conn: redis.Redis, tmp_path: Path, executor: str) -> None:
    seen, in_callback = tmp_path / "seen", tmp_path / "seen.callback"
    job = Queue("c", conn).enqueue_call(TASKS + "returns", (str(seen),), on_success=TASKS + "marks_and_blocks")
    worker = _start(workers, executor)
    eventually(in_callback.exists, why="its callback runs")
    worker.signal(signal.SIGTERM)
    worker.says("warm shutdown")
    worker.signal(signal.SIGTERM)
    worker.wait()
    assert (status_of(conn, job.id), len(runs_of(seen, "ran", job.id))) == ("finished", 1), worker.output
    assert "its process was killed as its worker ended" in field(conn, job.id, "callback_error")
