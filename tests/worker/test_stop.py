"""Running jobs that are stopped: whatever the task does, its processes are gone after the grace, and it ends as stopped, or as it ended itself."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import redis
from rq.command import send_stop_job_command

from fusion import Job, Queue
from fusion.exceptions import InvalidJobOperation
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import events_of
from tests.kit.waiting import eventually
from tests.kit.witnesses import alive, runs_of, status_of
from tests.kit.workers import SharedWorkers, WorkerProcess, Workers, alone_in_its_process

GRACE = 1.0
#: Seconds for a busy machine.
TOLERANCE = 1.5
MODES, NAMES = [("--slots", "2"), ("--horses", "2")], ["fork", "warm"]
#: Those in which a job has no neighbours, whatever executor the run is about.
APART = [
    pytest.param(MODES[0], marks=alone_in_its_process("its process has others, and goes on for them: test_crowd.py")),
    MODES[1],
]
ENV = {"FUSION_TASKS": "tests.jobs.stopping,tests.jobs.stubborn,tests.jobs.basic", "FUSION_TIMEOUT_GRACE": str(GRACE)}
#: The soft stop reaches the first ones; what gets around it is killed.
SOFT = [
    "stubborn.sleep", "stubborn.spin", "stubborn.leaves_a_child", "stubborn.leaves_a_daemon", "stopping.awaits", "stopping.awaits_others",
    "stopping.blocks_its_loop",
    "stopping.waits_for_a_thread", "stopping.runs_a_program", "stopping.fails_on_its_way_out",
    "stopping.threads",
]  # fmt: skip
HARD = [
    "stubborn.ignores_signals",
    "stubborn.swallows", "stubborn.spins_in_c", "stubborn.blocks_signals", "stubborn.child_that_swallows", "stubborn.daemon_that_swallows",
]  # fmt: skip


def _started(queue: Queue, task: str, seen: Path, **options: object) -> tuple[Job, list[int]]:
    """A job that runs, and the pids of all its processes."""
    job = queue.enqueue_call(f"tests.jobs.{task}", **{"args": (str(seen),), **options})
    count = 2 if "leaves" in task or "child" in task or "daemon" in task else 1
    pids = eventually(lambda: len(found := runs_of(seen, "here")) == count and found, why=f"{task} has begun")
    return job, pids


def _ended(conn: redis.Redis, job: Job, status: str) -> None:
    eventually(lambda: status_of(conn, job.id) == status, why=f"it is {status}, not {status_of(conn, job.id)}")
    check_conservation(conn, [job.id])


# -- workers that several of these tests share: one by name, and one of each mode with a queue of its own


@pytest.fixture
def worker(shared_workers: SharedWorkers) -> WorkerProcess:
    return shared_workers.start("t", "--name", "w", env=ENV)


def _queue_of(shared_workers: SharedWorkers, conn: redis.Redis, mode: tuple[str, ...]) -> Queue:
    shared_workers.start(name := mode[0].strip("-"), *mode, env=ENV)
    return Queue(name, conn)


@pytest.mark.usefixtures("worker")
def test_the_command_of_stock_rq_stops_a_job(conn: redis.Redis, tmp_path: Path) -> None:
    """`send_stop_job_command` names the job alone; what it wants is written down before anything is done."""
    job, _ = _started(Queue("t", conn), "stubborn.sleep", tmp_path / "seen")
    send_stop_job_command(conn, job.id)
    _ended(conn, job, "stopped")


@pytest.mark.long
@pytest.mark.usefixtures("worker")
def test_one_that_hears_again_asks_what_it_missed(conn: redis.Redis, tmp_path: Path) -> None:
    """Not at the next renewal of leases, which is ten seconds away."""
    job, _ = _started(Queue("t", conn), "stubborn.sleep", tmp_path / "seen")
    conn.hset(f"rq:job:{job.id}", "cancel", "stop")
    conn.client_kill_filter(_type="pubsub")
    begun = time.monotonic()
    _ended(conn, job, "stopped")
    assert time.monotonic() - begun < 5


@pytest.mark.long
def test_a_command_that_names_no_job_does_nothing(worker: WorkerProcess, conn: redis.Redis) -> None:
    junk: list[dict[str, object]] = [
        {},
        {"job_id": ""},
        {"job_id": "no such/id"},
        {"job_id": "nobody"},
        {"execution_id": "x"},
        {"job_id": [1]},
    ]
    before = worker.count("command: stop-job")
    for payload in junk:
        conn.publish("rq:pubsub:w", json.dumps({"command": "stop-job", **payload}))
    worker.says("command: stop-job", before + len(junk))
    job = Queue("t", conn).enqueue("tests.jobs.stubborn.nothing")
    _ended(conn, job, "finished")


@pytest.mark.long
@pytest.mark.parametrize("mode", APART, ids=NAMES)
def test_neighbours_run_on(shared_workers: SharedWorkers, conn: redis.Redis, tmp_path: Path, mode: tuple[str, ...]) -> None:
    queue = _queue_of(shared_workers, conn, mode)
    gate, seen = tmp_path / "gate", tmp_path / "seen"
    gate.touch()
    neighbour = queue.enqueue("tests.jobs.basic.until_gone", str(gate), str(seen))
    eventually(lambda: runs_of(seen, "started"))
    job, _ = _started(queue, "stubborn.swallows", tmp_path / "other")
    job.stop()
    _ended(conn, job, "stopped")
    gate.unlink()
    _ended(conn, neighbour, "finished")
    assert len(runs_of(seen, "started")) == 1


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES, ids=NAMES)
def test_the_callback_of_a_stop_is_called_where_the_task_ended_itself(
    shared_workers: SharedWorkers, conn: redis.Redis, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    queue = _queue_of(shared_workers, conn, mode)
    seen, others = tmp_path / "seen", tmp_path / "others"
    more = {"on_stopped": "tests.jobs.stopping.told", "on_failure": "tests.jobs.basic.complain"}
    job, _ = _started(queue, "stopping.awaits", seen, **more)
    job.stop()
    _ended(conn, job, "stopped")
    assert len(runs_of(seen, "told", job.id)) == 1
    hard, _ = _started(queue, "stubborn.swallows", others, on_stopped="tests.jobs.stopping.told")
    hard.stop()
    _ended(conn, hard, "stopped")
    assert runs_of(others, "told") == [], "there is no process any more in which to call it"
    assert not Job.fetch(job.id, conn).callback_error


# -- workers of their own


@pytest.mark.long
@pytest.mark.parametrize("mode", APART, ids=NAMES)
def test_a_job_that_is_stopped_is_gone_after_the_grace(
    workers: Workers, conn: redis.Redis, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    """Two at a time."""
    worker, queue = workers.start("t", *mode, env=ENV), Queue("t", conn)
    tasks = SOFT + HARD
    for pair in zip(tasks[::2], tasks[1::2], strict=False):
        jobs = [(task, *_started(queue, task, tmp_path / task)) for task in pair]
        for task, job, pids in jobs:
            begun = time.monotonic()
            assert job.stop() == "pending"
            limit = (GRACE if task in HARD else 0) + TOLERANCE
            eventually(lambda: not any(map(alive, pids)), limit, why=f"every process of {task} is gone")  # noqa: B023
            if task in HARD:
                assert time.monotonic() - begun >= GRACE - 0.1, f"{task} had its grace"
            _ended(conn, job, "stopped")
            history = Job.fetch(job.id, conn).attempt_history[-1]
            assert history.outcome == "stopped"
            assert ("was killed" in history.error) == (task in HARD), (task, history.error)
    assert worker.process.poll() is None
    after = queue.enqueue("tests.jobs.stubborn.nothing")
    _ended(conn, after, "finished")


@pytest.mark.long
@pytest.mark.parametrize("mode", APART, ids=NAMES)
def test_a_clean_up_has_its_time(workers: Workers, conn: redis.Redis, tmp_path: Path, mode: tuple[str, ...]) -> None:
    """The signal comes again meanwhile, as it does for a task that swallows it, and does not end what cleans up."""
    workers.start("t", *mode, env={**ENV, "FUSION_TIMEOUT_GRACE": "8"})
    seen = tmp_path / "seen"
    job, _ = _started(Queue("t", conn), "stopping.cleans_up", seen, args=(str(seen), 1.5))
    job.stop()
    _ended(conn, job, "stopped")
    assert runs_of(seen, "cleaned"), "to its end"


@alone_in_its_process("what sleeps in C is not reached before the grace")
def test_a_task_that_ends_of_itself_has_the_last_word(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    workers.start("t", env={**ENV, "FUSION_TIMEOUT_GRACE": "8"})
    for task, status in (("returns_all_the_same", "finished"), ("fails_of_itself_later", "failed")):
        job, _ = _started(Queue("t", conn), f"stopping.{task}", tmp_path / task)
        job.stop()
        _ended(conn, job, status)
        with pytest.raises(InvalidJobOperation, match=f"has ended \\({status}\\)"):
            job.stop()
    job, _ = _started(Queue("t", conn), "stopping.stops_itself", tmp_path / "stops_itself")
    _ended(conn, job, "failed")


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES, ids=NAMES)
def test_a_stop_comes_too_late_for_a_task_whose_callback_runs(
    workers: Workers, conn: redis.Redis, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    workers.start("t", *mode, env={**ENV, "FUSION_TIMEOUT_GRACE": "0.2"})
    seen = tmp_path / "seen"
    callback = "tests.jobs.stopping.sleeps_in_its_callback"
    job, _ = _started(Queue("t", conn), "stopping.finishes", seen, on_success=callback)
    assert job.stop() == "pending"
    _ended(conn, job, "finished")
    assert not Job.fetch(job.id, conn).callback_error


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES, ids=NAMES)
def test_a_worker_that_was_away_obeys_when_it_is_back(
    workers: Workers, conn: redis.Redis, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    """Its subscription is cut as the stop is published."""
    workers.start("t", *mode, "--name", "w", "--lease", "3", env=ENV)
    job, pids = _started(Queue("t", conn), "stubborn.sleep", tmp_path / "seen")
    conn.hset(f"rq:job:{job.id}", "cancel", "stop")  # what it would have heard, it did not
    _ended(conn, job, "stopped")
    # A process tells how its job ended before it ends itself.
    eventually(lambda: not any(map(alive, pids)), TOLERANCE, why="every process of the job is gone")


@pytest.mark.long
def test_a_worker_that_is_killed_leaves_its_job_stopped(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    worker = workers.start("t", "--lease", "2", env={**ENV, "FUSION_TIMEOUT_GRACE": "30"})
    job, _ = _started(Queue("t", conn), "stubborn.swallows", tmp_path / "seen")
    job.stop()
    worker.kill()
    workers.start("other", "--lease", "2", env=ENV)
    eventually(lambda: status_of(conn, job.id) == "stopped", 20)
    assert [event["event"] for event in events_of(conn, job.id)] == ["queued", "processing", "stopped"]
