"""Jobs of a task that a worker lacks: they keep nobody else waiting, and go to those that have it."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
import redis

from fusion import Queue
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import events_of
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, status_of
from tests.kit.workers import Workers

MODES = pytest.mark.parametrize("mode", ["slots", "horses"])
HAS = {"FUSION_TASKS": "tests.jobs.basic"}
LACKS = {"FUSION_TASKS": "tests.jobs.plain"}
HELD = "held:h:tests.jobs.basic.noop"


@pytest.mark.long
@MODES
def test_many_held_jobs_do_not_delay_one_behind_them(workers: Workers, conn: redis.Redis, mode: str) -> None:
    queue = Queue("h", conn)
    held = queue.enqueue_many([Queue.prepare_data("tests.jobs.basic.noop") for _ in range(6000)])
    good = queue.enqueue("tests.jobs.plain.add", 2)
    began = time.monotonic()
    workers.start("h", f"--{mode}", "2", env=LACKS)
    eventually(lambda: status_of(conn, good.id) == "finished", 30)
    assert time.monotonic() - began < 15
    assert {status_of(conn, job.id) for job in held[:20]} == {"blocked"}
    assert conn.zcard(f"rq:waits:{HELD}") == 6000
    tried = sum(field(conn, job.id, "deliveries") not in ("", "0") for job in held)
    assert tried <= 40, "the others were set aside without a process"
    check_conservation(conn, [good.id, *(job.id for job in held)])


@pytest.mark.long
@MODES
def test_a_worker_that_has_the_task_runs_them_at_once(workers: Workers, conn: redis.Redis, mode: str) -> None:
    """Whoever claims them first: two workers serve the queue, and one of them lacks the task."""
    queue = Queue("h", conn)
    workers.start("h", f"--{mode}", "2", env=LACKS)
    workers.start("h", f"--{mode}", "2", env=HAS)
    first = queue.enqueue("tests.jobs.basic.noop")
    eventually(lambda: status_of(conn, first.id) == "finished", 10)
    took = []
    for _ in range(40):
        began = time.monotonic()
        job = queue.enqueue("tests.jobs.basic.noop", priority=2)
        eventually(lambda job=job: status_of(conn, job.id) == "finished", 10)  # type: ignore[misc]
        took.append(time.monotonic() - began)
    assert sorted(took)[35] < 1.0, took
    assert max(took) < 2.5, "not even one waits for a look without a bell"


@pytest.mark.long
def test_one_that_comes_later_takes_what_is_held(workers: Workers, conn: redis.Redis) -> None:
    queue = Queue("h", conn)
    workers.start("h", env=LACKS)
    jobs = [queue.enqueue("tests.jobs.basic.noop") for _ in range(30)]
    eventually(lambda: {status_of(conn, job.id) for job in jobs} == {"blocked"})
    workers.start("h*", env=HAS)
    eventually(lambda: {status_of(conn, job.id) for job in jobs} == {"finished"})
    assert not any(field(conn, job.id, "attempts") for job in jobs)
    events = events_of(conn)
    held = max(at for at, event in enumerate(events) if event["event"] == "blocked")
    # Each once: one that was claimed ahead may go back and be claimed again.
    claimed = dict.fromkeys(event["job_id"] for event in events[held:] if event["event"] == "processing")
    assert list(claimed) == [job.id for job in jobs], "in their order"


def test_a_reload_brings_the_task(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    """A deploy puts the module there, and HUP has it looked for again."""
    package = tmp_path / "shop_later"
    package.mkdir()
    (package / "__init__.py").write_text("def first() -> str:\n    return 'old'\n")
    worker = workers.start("h", env={"FUSION_TASKS": "shop_later", "PYTHONPATH": str(tmp_path)})
    job = Queue("h", conn).enqueue("shop_later.second")
    eventually(lambda: status_of(conn, job.id) == "blocked")
    (package / "__init__.py").write_text("def second() -> str:\n    return 'new'\n")
    worker.signal(signal.SIGHUP)
    eventually(lambda: status_of(conn, job.id) == "finished", 10)


@pytest.mark.long
def test_one_that_is_held_for_too_long_fails_with_the_flag(workers: Workers, conn: redis.Redis) -> None:
    workers.start("h", env={**LACKS, "FUSION_HOLD_TIMEOUT": "1", "FUSION_LEASE": "1", "FUSION_REAP_INTERVAL": "0.2"})
    job = Queue("h", conn).enqueue("tests.jobs.basic.noop")
    eventually(lambda: status_of(conn, job.id) == "failed", 15)
    assert "--tasks tests.jobs.basic" in field(conn, job.id, "reason")
    assert check_conservation(conn, [job.id]) == {job.id: "failed"}
    assert conn.zcard(f"rq:waits:{HELD}") == 0


@pytest.mark.long
def test_a_burst_says_what_it_leaves(workers: Workers, conn: redis.Redis) -> None:
    queue = Queue("h", conn)
    jobs = [queue.enqueue("tests.jobs.basic.noop") for _ in range(3)]
    good = queue.enqueue("tests.jobs.plain.add", 2)
    worker = workers.start("h", "--burst", ready=False, env=LACKS)
    assert worker.wait() == 3
    assert status_of(conn, good.id) == "finished"
    assert {status_of(conn, job.id) for job in jobs} == {"blocked"}, "until a worker comes that has their task"
    assert "3 held in h for a worker that has tests.jobs.basic.noop" in worker.output
    assert "--tasks tests.jobs.basic" in worker.output
    assert "nothing left to do but 3 held job(s)" in worker.output.splitlines()[-2]


@pytest.mark.long
def test_a_burst_that_can_run_nothing_ends(workers: Workers, conn: redis.Redis) -> None:
    Queue("h", conn).enqueue("tests.jobs.basic.noop")
    worker = workers.start("h", "--burst", "--tasks", "typo", ready=False, env=HAS)
    assert worker.wait() == 1
    assert "task module typo can't be imported" in worker.output
