"""Jobs enqueued for a time, with real workers: run when they are due and not before, once, whoever dies meanwhile (P9's other half)."""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis

from fusion import Job, Queue, ScheduledJobRegistry
from fusion.status import JobStatus
from tests.faults.rig.conservation import check_conservation
from tests.jobs import basic
from tests.kit.process import ROOT
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, runs_of
from tests.kit.workers import Workers


def soon(seconds: float) -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=seconds)


def due_of(job: Job) -> dt.datetime:
    due = job.scheduled_at()
    assert due is not None
    return due


def test_a_job_runs_when_it_is_due_and_not_before(workers: Workers, conn: redis.Redis) -> None:
    workers.start("s", "scheduler")
    for queue in (Queue("s"), Queue("scheduler")):
        jobs = [queue.enqueue_at(soon(1), basic.moment), queue.enqueue_in(1, basic.moment)]
        dues = [due_of(job) for job in jobs]
        now = queue.enqueue(basic.moment)
        assert now.wait(20) == JobStatus.FINISHED
        assert [job.wait(20) for job in jobs] == ["finished", "finished"]
        for job, due in zip(jobs, dues, strict=True):
            assert job.result >= due.timestamp()
            assert job.enqueued_at is not None
            assert job.enqueued_at >= due, "it arrives in its queue then"
            assert (field(conn, job.id, "deliveries"), job.scheduled_at()) == ("1", None)
        check_conservation(conn, [job.id for job in (*jobs, now)])


@pytest.mark.long
def test_many_that_are_due_together_run_once_each_on_several_workers(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    for _ in range(2):
        workers.start("s", ready=False)
    due = soon(1.5)
    datas = [Queue.prepare_data(basic.witness, (str(seen), "run"), enqueue_at=due) for _ in range(40)]
    jobs = Queue("s").enqueue_many(datas)
    assert {str(job.get_status(refresh=False)) for job in jobs} == {"scheduled"}
    assert [job.wait(30) for job in jobs] == ["finished"] * 40
    assert [len(runs_of(seen, "run", job.id)) for job in jobs] == [1] * 40
    check_conservation(conn, [job.id for job in jobs])


@pytest.mark.long
def test_a_producer_killed_right_after_it_enqueued(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    code = (
        "import os, signal\n"
        "from fusion import Queue\n"
        f"Queue('s').enqueue_in(1, 'tests.jobs.basic.witness', {str(seen)!r}, 'run', job_id='orphan')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=os.environ, capture_output=True, timeout=30, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    job = Job.fetch("orphan")
    workers.start("s")
    assert job.wait(20) == JobStatus.FINISHED
    assert len(runs_of(seen, "run")) == 1
    check_conservation(conn, ["orphan"])


@pytest.mark.long
def test_a_worker_killed_while_the_job_is_scheduled(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    worker = workers.start("s")
    assert Queue("s").enqueue(basic.noop).wait(10) == JobStatus.FINISHED
    job = Queue("s").enqueue_in(2, basic.witness, str(seen), "run")
    worker.kill()
    assert job.get_status() == JobStatus.SCHEDULED
    workers.start("s")
    assert job.wait(20) == JobStatus.FINISHED
    assert len(runs_of(seen, "run")) == 1
    assert (field(conn, job.id, "deliveries"), job.lost, job.attempts) == ("1", 0, 0)
    check_conservation(conn, [job.id])


@pytest.mark.long
def test_a_worker_killed_in_the_run_of_one_that_was_scheduled(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    """From when it is due it is a job as any other."""
    gate, seen = tmp_path / "gate", tmp_path / "seen"
    gate.touch()
    env = {"FUSION_LEASE": "1"}
    worker = workers.start("s", env=env)
    job = Queue("s").enqueue_in(0.3, basic.until_gone, str(gate), str(seen))
    eventually(lambda: runs_of(seen, "started"), why="its run")
    worker.kill()
    workers.start("s", env=env)
    eventually(lambda: len(runs_of(seen, "started")) == 2, why="its second run")
    gate.unlink()
    assert job.wait(20) == JobStatus.FINISHED
    assert [attempt.outcome for attempt in job.attempt_history] == ["lost"]
    check_conservation(conn, [job.id])


@pytest.mark.long
def test_what_was_canceled_or_rescheduled_in_time(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    canceled, kept = (Queue("s").enqueue_in(1, basic.witness, str(seen), "run") for _ in range(2))
    assert canceled.cancel() == "canceled"
    later = Queue("s").enqueue_in(1, basic.moment)
    first = due_of(later)
    later.reschedule("1h")
    workers.start("s")
    sooner = Queue("s").enqueue_in("1h", basic.moment)
    due = sooner.reschedule(1)
    assert due > first
    assert sooner.wait(20) == JobStatus.FINISHED
    assert sooner.result >= due.timestamp()
    assert later.get_status() == JobStatus.SCHEDULED, "its first time is over"
    assert ScheduledJobRegistry().get_job_ids() == [later.id]
    assert kept.wait(20) == JobStatus.FINISHED
    assert canceled.get_status() == JobStatus.CANCELED
    assert (runs_of(seen, "run", canceled.id), len(runs_of(seen, "run", kept.id))) == ([], 1)
    check_conservation(conn, [canceled.id, kept.id, later.id, sooner.id])


@pytest.mark.long
def test_one_that_waited_longer_than_its_ttl_after_it_was_due_expires(
    workers: Workers, conn: redis.Redis, tmp_path: Path
) -> None:
    """Before that it does not count: the first job's ttl is shorter than the time until it is due."""
    seen = tmp_path / "seen"
    workers.start("s")
    job = Queue("s").enqueue_in(2.2, basic.witness, str(seen), "run", ttl=2)
    late = Queue("nobody").enqueue_in(0.1, basic.witness, str(seen), "run", ttl=0.2)
    expires = int(field(conn, late.id, "expires_at")) / 1000
    assert job.wait(20) == JobStatus.FINISHED
    assert time.time() > expires
    workers.burst("nobody")
    assert late.get_status() == JobStatus.CANCELED
    assert Job.fetch(late.id).reason == "expired"
    assert len(runs_of(seen, "run")) == 1
