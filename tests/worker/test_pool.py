"""Warm processes: one job after another in each, with nothing of one in the next, under the rules that hold for a process per job."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Callback, Queue
from fusion.job import Job
from tests.faults.rig.conservation import check_conservation
from tests.jobs import basic
from tests.jobs.warm import KINDS
from tests.kit.waiting import eventually
from tests.kit.witnesses import alive, field, runs_of, status_of
from tests.kit.workers import SharedWorkers, WorkerProcess, Workers

WARM = {"FUSION_TASKS": "tests.jobs.warm,tests.jobs.stubborn,tests.jobs.basic", "FUSION_TIMEOUT_GRACE": "0.5"}


def result(conn: redis.Redis, job: Job) -> Any:
    eventually(lambda: status_of(conn, job.id) == "finished", 20, why=f"{job.id} is finished")
    return json.loads(field(conn, job.id, "result"))


def put(conn: redis.Redis, task: str, *args: Any, **options: Any) -> Job:
    return Queue(options.pop("queue", "w"), conn).enqueue(f"tests.jobs.warm.{task}", *args, **options)


# -- one worker of one warm process for all of these


@pytest.fixture
def worker(shared_workers: SharedWorkers) -> WorkerProcess:
    return shared_workers.start("w", "--horses", "1", env=WARM)


@contextmanager
def backlog(conn: redis.Redis) -> Iterator[None]:
    """What is enqueued here waits until the end of the block, as it does before a worker has started."""
    Queue("w", conn).pause()
    yield
    Queue("w", conn).resume()


@pytest.mark.usefixtures("worker")
def test_one_process_runs_many_jobs(conn: redis.Redis) -> None:
    with backlog(conn):
        jobs = [put(conn, "pid") for _ in range(30)]
    assert len({result(conn, job) for job in jobs}) == 1
    assert set(check_conservation(conn, [job.id for job in jobs]).values()) == {"finished"}


@pytest.mark.long
@pytest.mark.usefixtures("worker")
def test_context_variables_are_those_of_one_job(conn: redis.Redis) -> None:
    with backlog(conn):
        first, second = put(conn, "leave_in_context", "first"), put(conn, "leave_in_context", "second")
    pid, *_ = result(conn, first)
    assert result(conn, second) == [pid, "nobody", 28]


@pytest.mark.long
@pytest.mark.usefixtures("worker")
def test_large_arguments_and_results_fit(conn: redis.Redis) -> None:
    sizes = [10, 60_000, 65_500, 65_536, 70_000, 300_000, 500_000]
    with backlog(conn):
        jobs = [put(conn, "size_of", "x" * size, size) for size in (*sizes, *reversed(sizes))]
    found = [result(conn, job) for job in jobs]
    assert len({pid for pid, _, _ in found}) == 1
    assert [size for _, size, _ in found] == [*sizes, *reversed(sizes)]
    assert all(len(back) == size for _, size, back in found)


@pytest.mark.long
@pytest.mark.usefixtures("worker")
def test_a_process_that_idles_beyond_its_last_deadline_lives_on(conn: redis.Redis) -> None:
    pid = result(conn, put(conn, "pid", job_timeout=0.3))
    begun = time.monotonic()
    later = Queue("w", conn).enqueue_in(3, "tests.jobs.warm.pid")
    assert result(conn, later) == pid
    assert time.monotonic() > begun + 2


@pytest.mark.long
@pytest.mark.usefixtures("worker")
def test_callbacks(conn: redis.Redis, tmp_path: Path) -> None:
    """Each job's own, in the process that ran it, which runs the next one too."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    queue = Queue("w", conn)
    both: dict[str, Any] = {"on_success": basic.remember, "on_failure": basic.complain}
    first, plain, fails = (
        queue.enqueue(basic.echo, str(good), **both),
        queue.enqueue(basic.add, 1, 2),
        queue.enqueue(basic.boom, str(bad), **both),
    )
    breaks = queue.enqueue("tests.jobs.warm.pid", on_success=basic.breaking_callback)
    after = queue.enqueue("tests.jobs.warm.pid")
    assert [job.wait(20) for job in (first, plain, fails, breaks, after)] == [
        "finished",
        "finished",
        "failed",
        "finished",
        "finished",
    ]
    assert good.read_text() == f"success {first.id} None\n"
    assert bad.read_text() == f"failure {fails.id} ValueError\n"
    assert field(conn, breaks.id, "callback_error") == "on_success: RuntimeError: the callback broke"
    assert breaks.result == after.result


@pytest.mark.long
def test_a_callback_that_hangs_ends_its_process_only(worker: WorkerProcess, conn: redis.Redis) -> None:
    queue = Queue("w", conn)
    hangs = queue.enqueue("tests.jobs.warm.pid", on_success=Callback("tests.jobs.warm.hang_after", timeout=0.3))
    after = queue.enqueue("tests.jobs.warm.pid")
    assert after.wait(20) == "finished"
    assert hangs.wait(20) == "finished"
    assert "JobTimeoutException" in field(conn, hangs.id, "callback_error")
    assert alive(worker.pid)


# -- workers of their own


def test_jobs_run_in_all_warm_processes_at_once(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen, gate = tmp_path / "seen", tmp_path / "gate"
    workers.start("w", "--horses", "3", env=WARM)
    jobs = [put(conn, "gate", str(gate), str(seen)) for _ in range(4)]
    eventually(lambda: len(runs_of(seen, "here")) == 3)
    assert status_of(conn, jobs[3].id) in ("queued", "started")
    gate.touch()
    assert len({result(conn, job) for job in jobs}) == 3


@pytest.mark.long
def test_what_a_job_leaves_no_other_finds(workers: Workers, conn: redis.Redis) -> None:
    """Each kind: the job's outcome stands, the next job runs in another process and finds a clean one."""
    queue = Queue("w", conn)
    probe = "tests.jobs.stubborn.probe"
    clean = queue.enqueue(probe)
    rows = [(kind, put(conn, "pid"), put(conn, "leave", kind), put(conn, "pid"), queue.enqueue(probe)) for kind in KINDS]
    # one after the other: of jobs that wait ahead and are taken back, a later one may start first
    worker = workers.burst("w", "--horses", "1", "--claim-ahead", "0", env=WARM, timeout=60)
    expected = result(conn, clean)
    for kind, before, leaving, after, probed in rows:
        assert result(conn, before) == result(conn, leaving), f"{kind}: the job before left nothing"
        assert result(conn, after) != result(conn, leaving), kind
        found = result(conn, probed)
        found["descriptors"] = expected["descriptors"]  # warm processes may keep theirs
        assert found == expected, kind
        assert f"left in its process: {kind}" in worker.output or kind == "process group"
    assert len({result(conn, row[3]) for row in rows}) == len(KINDS)


def test_a_job_may_ask_for_a_process_of_its_own(workers: Workers, conn: redis.Redis) -> None:
    before, alone, alone_too, after = (
        put(conn, "pid"),
        put(conn, "pid", isolate=True),
        put(conn, "pid", queue="own-1"),
        put(conn, "pid"),
    )
    alone_again = put(conn, "pid", isolate=True)
    worker = workers.start("w", "own-1", "--horses", "1", env={**WARM, "FUSION_ISOLATE_QUEUES": "own-*"})
    warm = result(conn, before)
    assert result(conn, after) == warm
    others = [result(conn, job) for job in (alone, alone_too, alone_again)]
    assert len({warm, *others}) == 4
    eventually(lambda: not any(alive(pid) for pid in others), why="processes of isolated jobs end")
    assert alive(warm)
    assert "left in its process" not in worker.output


@pytest.mark.long
def test_a_process_serves_so_many_jobs(workers: Workers, conn: redis.Redis) -> None:
    jobs = [put(conn, "pid") for _ in range(12)]
    workers.burst("w", "--horses", "1", "--max-jobs-per-horse", "5", env=WARM)
    pids = [result(conn, job) for job in jobs]
    assert sorted(pids.count(pid) for pid in set(pids)) == [2, 5, 5]


@pytest.mark.long
def test_a_process_that_held_too_much_memory_is_replaced(workers: Workers, conn: redis.Redis) -> None:
    small, big, after = put(conn, "hold", 1000), put(conn, "hold", 150_000_000), put(conn, "pid")
    workers.burst("w", "--horses", "1", "--max-horse-rss", "100m", env=WARM)
    assert result(conn, small) == result(conn, big) != result(conn, after)


@pytest.mark.long
def test_a_timeout_is_each_jobs_own(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    """The second one overruns: its time counts from its own begin, and what came before and after in that process is unharmed."""
    seen = tmp_path / "seen"
    queue = Queue("w", conn)
    first = put(conn, "nap", 0.4, job_timeout=0.8)
    second = put(conn, "nap", 0.4, job_timeout=0.8)
    third = queue.enqueue("tests.jobs.stubborn.swallows", str(seen), job_timeout=0.3)
    after = put(conn, "pid", job_timeout=0.3)
    workers.start("w", "--horses", "1", env=WARM)
    pid = result(conn, first)
    assert result(conn, second) == pid
    eventually(lambda: status_of(conn, third.id) == "failed", why="killed at timeout and grace")
    assert runs_of(seen, "here") == [pid]
    assert "did not end within its timeout of 0.3 s plus 0.5 s grace and was killed" in field(conn, third.id, "exc_info")
    assert result(conn, after) != pid
    check_conservation(conn, [job.id for job in (first, second, third, after)])


@pytest.mark.long
def test_hard_deadlines_hold_though_the_worker_is_stopped(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    worker = workers.start("w", "--horses", "1", env=WARM)
    pid = result(conn, put(conn, "pid"))
    stuck = Queue("w", conn).enqueue("tests.jobs.stubborn.swallows", str(seen), job_timeout=0.5)
    eventually(lambda: runs_of(seen, "here") == [pid])
    worker.signal(signal.SIGSTOP)
    eventually(lambda: not alive(pid), 15, why="the fork server kills it")
    worker.signal(signal.SIGCONT)
    eventually(lambda: status_of(conn, stuck.id) == "failed")
    assert "grace and was killed" in field(conn, stuck.id, "exc_info")
    assert result(conn, put(conn, "pid")) != pid
    assert "stuck" not in worker.output


def test_an_idle_process_that_is_killed_is_replaced(workers: Workers, conn: redis.Redis) -> None:
    worker = workers.start("w", "--horses", "1", env=WARM)
    pid = result(conn, put(conn, "pid"))
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: "a warm process died without a job" in worker.output)
    assert result(conn, put(conn, "pid")) != pid


def test_a_poison_pill_ends_as_one(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    pill = Queue("w", conn).enqueue("tests.jobs.basic.signal_self", 9, str(seen))
    others = [put(conn, "pid") for _ in range(5)]
    workers.start("w", "--horses", "2", env={**WARM, "FUSION_MAX_LOST": "2"})
    eventually(lambda: status_of(conn, pill.id) == "failed", 20)
    assert "poison pill" in field(conn, pill.id, "reason")
    assert len(runs_of(seen, "signal")) == 2
    assert [field(conn, job.id, "deliveries") for job in others if result(conn, job)] == ["1"] * 5


def test_warm_end(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen, gate = tmp_path / "seen", tmp_path / "gate"
    worker = workers.start("w", "--horses", "2", env=WARM)
    jobs = [put(conn, "gate", str(gate), str(seen)) for _ in range(3)]
    eventually(lambda: len(runs_of(seen, "here")) == 2)
    worker.signal(signal.SIGTERM)
    eventually(lambda: "warm shutdown" in worker.output)
    gate.touch()
    assert worker.wait() == 0
    assert [status_of(conn, job.id) for job in jobs] == ["finished", "finished", "queued"]


@pytest.mark.long
def test_cold_end(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    worker = workers.start("w", "--horses", "2", env=WARM)
    jobs = [put(conn, "nap", 60, str(seen)) for _ in range(3)]
    pids = eventually(lambda: len(found := runs_of(seen, "ran")) == 2 and found)
    worker.signal(signal.SIGQUIT)
    assert worker.wait() == 1
    assert not any(alive(pid) for pid in pids)
    for job in jobs:
        assert status_of(conn, job.id) == "queued"
        assert (field(conn, job.id, "attempts"), field(conn, job.id, "lost")) == ("", "")
    check_conservation(conn, [job.id for job in jobs])


def test_reload_brings_fresh_processes(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen, gate = tmp_path / "seen", tmp_path / "gate"
    worker = workers.start("w", "--horses", "2", env=WARM)
    warm = result(conn, put(conn, "pid"))
    under_way = put(conn, "gate", str(gate), str(seen))
    eventually(lambda: runs_of(seen, "here"))
    old = worker.fork_server().pid
    worker.signal(signal.SIGHUP)
    fresh = result(conn, put(conn, "pid"))
    assert fresh != warm
    assert alive(old), "its job goes on"
    gate.touch()
    result(conn, under_way)
    eventually(lambda: not alive(old))


@pytest.mark.long
def test_the_memory_limit_of_a_job_kills_that_job_only(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    greedy = Queue("w", conn).enqueue("tests.jobs.greedy.hold", 300, str(gate), str(tmp_path / "seen"))
    workers.start("w", "--horses", "1", "--max-job-memory", "150", env={**WARM, "FUSION_TASKS": "tests.jobs"})
    eventually(lambda: status_of(conn, greedy.id) == "failed", 20)
    assert "more than --max-job-memory 150" in field(conn, greedy.id, "exc_info")
    assert result(conn, put(conn, "pid"))


@pytest.mark.long
def test_frames_that_are_no_outcome_cost_no_other_job(workers: Workers, conn: redis.Redis) -> None:
    """Whatever a task writes to the worker in its own name or in nobody's, the jobs behind it end as ever."""
    worker = workers.start("w", "--horses", "1", env={**WARM, "FUSION_MAX_LOST": "3"})
    frames: list[dict[str, str]] = [
        {"kind": "finished", "result": "1", "elapsed": "0.1"},
        {"kind": "finished", "elapsed": "long"},
        {"kind": "failed", "elapsed": "-inf"},
        {"kind": "nonsense"},
        {"kind": "callback"},
        {"kind": "meta", "meta": "not json"},
        {"kind": "finished", "execution_id": "another:1:1a"},
        {},
    ]
    forging = [put(conn, "forge", json.dumps(frame), own) for frame in frames for own in (True, False)]
    others = [put(conn, "pid") for _ in range(5)]
    for job in others:
        result(conn, job)
    assert worker.process.poll() is None, worker.output
    states = check_conservation(conn, [job.id for job in [*forging, *others]])
    assert all(state in ("finished", "failed", "scheduled") for state in states.values()), states
    assert {field(conn, job.id, "exc_info") for job in others} == {""}


@pytest.mark.long
def test_leaked_descriptors_are_no_other_jobs_trouble(workers: Workers, conn: redis.Redis) -> None:
    """At two a job, hundreds of jobs; each finds room for its own."""
    env = {**WARM, "FUSION_TASKS": "tests.jobs.warm"}
    queue = Queue("w", conn)
    jobs = queue.enqueue_many([Queue.prepare_data("tests.jobs.warm.leak", [20]) for _ in range(120)])
    worker = workers.burst("w", "--horses", "1", env=env, timeout=60)
    found = [result(conn, job) for job in jobs]
    assert max(count for _, count in found) <= 256 + 20
    assert len({pid for pid, _ in found}) == 120 * 20 // 260 + 1
    assert "left in its process: descriptors" in worker.output
    assert set(check_conservation(conn, [job.id for job in jobs]).values()) == {"finished"}


@pytest.mark.long
def test_one_that_takes_all_descriptors_is_the_last_in_its_process(workers: Workers, conn: redis.Redis) -> None:
    """For those that wait behind it too."""
    queue = Queue("w", conn)
    warming = [Queue.prepare_data("tests.jobs.warm.opens") for _ in range(20)]
    greedy = Queue.prepare_data("tests.jobs.warm.leak", [-1])
    others = [Queue.prepare_data("tests.jobs.warm.opens") for _ in range(60)]
    jobs = queue.enqueue_many([*warming, greedy, *others])
    workers.burst("w", "--horses", "1", env=WARM | {"FUSION_CLAIM_AHEAD": "100"}, timeout=60)
    found = [result(conn, job) for job in jobs]
    assert found[20][0] not in found[21:]


@pytest.mark.long
def test_what_a_task_keeps_open_it_may_keep(workers: Workers, conn: redis.Redis) -> None:
    jobs = [put(conn, "leak", 3) for _ in range(30)]
    workers.burst("w", "--horses", "1", env=WARM)
    assert len({result(conn, job)[0] for job in jobs}) == 1
