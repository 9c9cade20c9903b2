"""Timeouts are hard (P8): whatever the task does, its process group is gone by timeout + grace, and the job's record says why."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
import redis

from fusion import Queue
from fusion.executors.session import EXIT_LIMIT
from tests.faults.rig.conservation import check_conservation
from tests.kit.length import gate_case, long_case
from tests.kit.private_redis import PrivateRedis
from tests.kit.promises import claim
from tests.kit.waiting import eventually
from tests.kit.witnesses import alive, field, runs_of, status_of
from tests.kit.workers import CROWDED, HORSES, Workers, alone_in_its_process, process_per_job

TIMEOUT, GRACE = 0.5, 0.5
#: Seconds for a busy machine.
TOLERANCE = 1.5
STUBBORN = {"FUSION_TASKS": "tests.jobs.stubborn", "FUSION_TIMEOUT_GRACE": str(GRACE)}

#: The soft timeout reaches the first ones, SIGKILL ends the others.
_LIVES_ON = process_per_job("a warm process that the soft timeout has reached takes the next job")
_SLEEP = pytest.param("sleep", marks=_LIVES_ON)
_NOT_SO_SOON = alone_in_its_process("the fork server's own deadline is some seconds later there")
SOFT = ["leaves_a_child", "leaves_a_daemon"]
#: Those are gone where each job has a process of its own; a warm one takes the next job.
SOFT_ALONE = ["sleep", "spin"]
HARD = ["swallows", "spins_in_c", "ignores_signals", "blocks_signals", "child_that_swallows", "daemon_that_swallows"]


def _gone_in_time(pids: list[int], begun: float) -> None:
    left = begun + TIMEOUT + GRACE + TOLERANCE - time.monotonic()
    eventually(lambda: not any(alive(pid) for pid in pids), max(left, 0), why="every process of the job is gone")


def _pids(seen: Path, task: str) -> list[int]:
    """Once all processes of a task have begun."""
    count = 2 if task.startswith(("child", "daemon", "leaves")) else 1
    return eventually(lambda: len(found := runs_of(seen, "here")) == count and found, why=f"all processes of {task} have begun")


@claim("P8")
@alone_in_its_process("test_crowd.py has that: what sleeps in C is not reached before the grace")
@pytest.mark.parametrize("mode", [pytest.param((), id="process"), gate_case(("--horses", "2"), id="pool")])
def test_a_job_is_gone_by_timeout_and_grace(workers: Workers, conn: redis.Redis, tmp_path: Path, mode: tuple[str, ...]) -> None:
    """Two at a time."""
    worker = workers.start("t", *(mode or ("--slots", "2")), env=STUBBORN)
    queue, ended = Queue("t", conn), []
    tasks = [*SOFT, *([] if mode or HORSES else SOFT_ALONE), *HARD]
    for pair in zip(tasks[::2], tasks[1::2], strict=True):
        seen = {task: tmp_path / task for task in pair}
        jobs = {task: queue.enqueue(f"tests.jobs.stubborn.{task}", str(seen[task]), job_timeout=TIMEOUT) for task in pair}
        for task in pair:
            eventually(lambda: runs_of(seen[task], "here"), why=f"{task} has begun")  # noqa: B023
        begun = time.monotonic()
        _gone_in_time([pid for task in pair for pid in _pids(seen[task], task)], begun)
        for task, job in jobs.items():
            eventually(lambda: status_of(conn, job.id) == "failed", why=f"{task} has failed")  # noqa: B023
            told = field(conn, job.id, "exc_info")
            assert "JobTimeoutException" in told, task
            killed = f"timeout of {TIMEOUT:g} s plus {GRACE:g} s grace and was killed"
            assert (killed in told) == (task in HARD), (task, told)
        after = queue.enqueue("tests.jobs.stubborn.nothing")
        eventually(lambda: status_of(conn, after.id) == "finished", why="the next job runs")  # noqa: B023
        ended += [*(job.id for job in jobs.values()), after.id]
    assert worker.process.poll() is None
    assert all(_pids(tmp_path / task, task) for task in tasks), "none ran a second time"
    check_conservation(conn, ended)


@pytest.mark.long
@pytest.mark.parametrize("task", [long_case(_SLEEP), "swallows"])
def test_a_job_is_gone_in_time_though_redis_hangs(
    task: str, private_redis: PrivateRedis, private_workers: Workers, tmp_path: Path
) -> None:
    seen, conn = tmp_path / "seen", private_redis.conn
    worker = private_workers.start("t", env={**STUBBORN, "FUSION_SOCKET_TIMEOUT": "0.4"})
    job = Queue("t", conn).enqueue(f"tests.jobs.stubborn.{task}", str(seen), job_timeout=TIMEOUT)
    pids = eventually(lambda: runs_of(seen, "here"), why="the task has begun")
    begun = time.monotonic()
    private_redis.pause()
    _gone_in_time(pids, begun)
    eventually(lambda: "Redis is away" in worker.output, why="the failure could not be committed yet")
    private_redis.resume()
    eventually(lambda: status_of(conn, job.id) == "failed", why="it is committed as soon as Redis answers")
    assert "JobTimeoutException" in field(conn, job.id, "exc_info")
    assert len(runs_of(seen, "here")) == 1
    check_conservation(conn, [job.id])


@claim("P8")
@pytest.mark.long
@alone_in_its_process("the fork server's own deadline is some seconds later there")
def test_a_job_is_gone_in_time_though_its_worker_is_stopped(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    worker = workers.start("t", env=STUBBORN)
    job = Queue("t", conn).enqueue("tests.jobs.stubborn.swallows", str(seen), job_timeout=TIMEOUT)
    pids = eventually(lambda: runs_of(seen, "here"), why="the task has begun")
    begun = time.monotonic()
    worker.signal(signal.SIGSTOP)
    _gone_in_time(pids, begun)
    worker.signal(signal.SIGCONT)
    eventually(lambda: status_of(conn, job.id) == "failed")
    check_conservation(conn, [job.id])


@pytest.mark.long
@pytest.mark.parametrize("mode", [pytest.param((), marks=_NOT_SO_SOON), ("--horses", "2")], ids=["process per job", "warm"])
def test_a_worker_that_stood_still_hears_first_what_came_meanwhile(
    mode: tuple[str, ...], workers: Workers, conn: redis.Redis, tmp_path: Path
) -> None:
    """The death of a job is in its socket, though long overdue: the fork server has done its part, and the job beside lives on."""
    gate, seen = tmp_path / "gate", tmp_path / "seen"
    gate.touch()
    worker = workers.start("t", *(mode or ("--slots", "2")), env={**STUBBORN, "FUSION_TASKS": "tests.jobs"})
    queue = Queue("t", conn)
    beside = queue.enqueue("tests.jobs.basic.until_gone", str(gate), str(tmp_path / "beside"))
    eventually(lambda: runs_of(tmp_path / "beside", "started"), why="the one beside it runs")
    job = queue.enqueue("tests.jobs.stubborn.swallows", str(seen), job_timeout=TIMEOUT)
    pids = eventually(lambda: runs_of(seen, "here"), why="the task has begun")
    begun = time.monotonic()
    worker.signal(signal.SIGSTOP)
    _gone_in_time(pids, begun)
    overdue = begun + TIMEOUT + GRACE + EXIT_LIMIT + 1.0
    eventually(lambda: time.monotonic() > overdue, TIMEOUT + GRACE + EXIT_LIMIT + 2.0)
    worker.signal(signal.SIGCONT)
    eventually(lambda: status_of(conn, job.id) == "failed")
    gate.unlink()
    eventually(lambda: status_of(conn, beside.id) == "finished")
    assert "stuck" not in worker.output
    assert len(runs_of(tmp_path / "beside", "started")) == 1
    check_conservation(conn, [job.id, beside.id])


@pytest.mark.long
@_NOT_SO_SOON
@pytest.mark.parametrize("nth", [long_case(1), 2])
def test_a_worker_stopped_as_it_sends_a_job_leaves_that_its_limit(
    nth: int, workers: Workers, conn: redis.Redis, tmp_path: Path
) -> None:
    """The fork server knows the deadline before the horse has the job; in a warm horse, also that of a later job."""
    seen = tmp_path / "seen"
    worker = workers.start("t", env={**STUBBORN, "FUSION_FAILPOINTS": f"handout.frame=stop@{nth}"})
    queue = Queue("t", conn)
    for _ in range(nth - 1):
        before = queue.enqueue("tests.jobs.stubborn.nothing")
        eventually(lambda job=before: status_of(conn, job.id) == "finished")
    queue.enqueue("tests.jobs.stubborn.swallows", str(seen), job_timeout=TIMEOUT)
    pids = eventually(lambda: runs_of(seen, "here"), why="the task has begun")
    _gone_in_time(pids, time.monotonic())
    worker.signal(signal.SIGCONT)


@pytest.mark.long
def test_a_stopped_fork_server_does_not_lift_the_limit(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    """The worker kills a fork server that misses a deadline, and everything below it."""
    seen = tmp_path / "seen"
    worker = workers.start("t", env=STUBBORN)
    queue = Queue("t", conn)
    job = queue.enqueue("tests.jobs.stubborn.child_that_swallows", str(seen), job_timeout=TIMEOUT)
    pids = eventually(lambda: len(found := runs_of(seen, "here")) == 2 and found, why="the task has begun")
    worker.fork_server().send_signal(signal.SIGSTOP)
    after = queue.enqueue("tests.jobs.stubborn.nothing")
    eventually(lambda: status_of(conn, job.id) == "failed", 12, why="the job failed of its timeout, it is not run again")
    eventually(lambda: not any(alive(pid) for pid in pids), TOLERANCE, why="every process of the job is gone")
    assert "JobTimeoutException" in field(conn, job.id, "exc_info")
    assert len(runs_of(seen, "here", job.id)) == 2
    eventually(lambda: status_of(conn, after.id) == "finished", why="a new fork server runs the next job")
    check_conservation(conn, [job.id, after.id])


def test_no_limit_is_no_limit(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    workers.start("t", env={**STUBBORN, "FUSION_TIMEOUT_GRACE": "0.1", "FUSION_JOB_TIMEOUT": "0.1"})
    job = Queue("t", conn).enqueue("tests.jobs.stubborn.short", str(seen), job_timeout=-1)
    limited = Queue("t", conn).enqueue("tests.jobs.stubborn.short", str(seen), job_timeout=0.1)
    eventually(lambda: status_of(conn, limited.id) == "failed")
    assert status_of(conn, job.id) == "finished"
    check_conservation(conn, [job.id, limited.id])


@pytest.mark.long
@pytest.mark.parametrize("mode", [(), ("--horses", "2")], ids=["process per job", "warm"])
def test_limits_of_months_and_years(mode: tuple[str, ...], workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    """poll() and the timers of a process reach 24 days, and 31 years: no job is to know of it, nor one beside it."""
    gate, seen = tmp_path / "gate", tmp_path / "seen"
    gate.touch()
    worker = workers.start("t", *(mode or ("--slots", "2")), env={"FUSION_TASKS": "tests.jobs"})
    queue, server = Queue("t", conn), worker.fork_server().pid
    stored = [
        queue.enqueue("tests.jobs.basic.limit", job_timeout="30d", at_front=True),
        queue.enqueue("tests.jobs.basic.limit", job_timeout=1e9),
    ]
    foreign = queue.enqueue("tests.jobs.basic.limit", enqueue_in=0.3)
    conn.hset(f"rq:job:{foreign.id}", "timeout", "1e300")
    beside = queue.enqueue("tests.jobs.basic.until_gone", str(gate), str(seen), job_timeout="3650d")
    eventually(lambda: all(status_of(conn, job.id) == "finished" for job in (*stored, foreign)))
    eventually(lambda: runs_of(seen, "started"), why="the one beside them runs")
    # Beside others what waits in C ends with them: a near limit is kept by what does not.
    task = "tests.jobs.beside.turns" if CROWDED and not mode else "tests.jobs.stubborn.swallows"
    bounded = queue.enqueue(task, 60.0 if task.endswith("turns") else str(seen), job_timeout=TIMEOUT)
    eventually(lambda: status_of(conn, bounded.id) == "failed", why="a near limit beside one of ten years is kept")
    gate.unlink()
    eventually(lambda: status_of(conn, beside.id) == "finished")
    assert worker.fork_server().pid == server, worker.output
    assert len(runs_of(seen, "started")) == 1
    assert [field(conn, job.id, "result") for job in stored] == ["2592000.0", "1000000000.0"]
    check_conservation(conn, [job.id for job in (*stored, foreign, beside, bounded)])
