"""What a Worker shows of itself, how it is found, how it ends; RQScheduler, executions, and what `unique=` refuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import redis

from fusion.rq import Queue, RateLimit, SimpleWorker, Worker
from fusion.rq.callbacks import execute_failure_callback, execute_stopped_callback, execute_success_callback
from fusion.rq.exceptions import InvalidJobOperation
from fusion.rq.executions import Execution
from fusion.rq.job import Job
from fusion.rq.queue import Queue as RQQueue
from fusion.rq.scheduler import RQScheduler
from fusion.rq.timeouts import UnixSignalDeathPenalty
from fusion.rq.worker import RandomWorker, WorkerStatus
from tests.kit.process import ROOT
from tests.kit.waiting import eventually
from tests.rq import tasks_of_rq as tasks

Burst = Callable[..., bool]
PAST = datetime(2019, 1, 1, tzinfo=timezone.utc)


class OwnJob(Job):
    """A program's own class."""


def test_what_a_worker_says_of_itself(client: redis.Redis) -> None:
    worker = Worker(["a", "b"], name="one", connection=client, job_class=f"{__name__}.OwnJob")
    assert Worker(["a"], connection=client, queue_class="rq.Queue").queue_class is Queue
    assert worker.job_class is OwnJob and worker.queues[0].job_class is OwnJob and Worker.job_class is Job
    with pytest.raises(NotImplementedError, match="register_birth"):
        worker.set_state("busy")
    worker.python_version = "X.Y"
    worker.register_birth()
    worker.set_state(WorkerStatus.BUSY)
    found = Worker.find_by_key(worker.key, client)
    assert (found.get_state(), found.python_version, found.version) == (WorkerStatus.BUSY, "X.Y", "3.0.0")
    assert worker.death_date is None
    worker.register_death()
    assert worker.death_date is not None and worker.get_state() == "?" and Worker.all_keys(client) == []
    worker.register_birth()
    with pytest.raises(ValueError, match="'unknown'"):
        worker.set_state("unknown")


def test_a_worker_at_work_says_the_same(queue: Queue, client: redis.Redis) -> None:
    job = queue.enqueue(tasks.nap, 1)
    seen: list[object] = []

    def look() -> None:
        other = (
            redis.Redis(**client.connection_pool.connection_kwargs, connection_class=client.connection_pool.connection_class)
            if ("path" not in client.connection_pool.connection_kwargs)
            else redis.Redis(unix_socket_path=client.connection_pool.connection_kwargs["path"])
        )
        found = Job.fetch(job.id, other)
        eventually(lambda: bool(found.get_executions()))
        (execution,) = found.get_executions()
        again = Execution.fetch(execution.id, job.id, other)
        seen.extend([Worker.all(other)[0].python_version, execution == again, again.worker_name, again.job.id, again.created_at])

    watcher = threading.Thread(target=look)
    watcher.start()
    worker = Worker([queue], name="looked-at")
    worker.work(burst=True, with_scheduler=True)
    watcher.join()
    assert seen[:4] == [sys.version, True, "looked-at", job.id] and isinstance(seen[4], datetime)
    assert job.get_executions() == [] and worker.scheduler is not None and worker.death_date is not None
    assert not worker._stop_requested
    with pytest.raises(ValueError, match="not under way"):
        Execution.fetch("gone", job.id, client)


@pytest.mark.parametrize("signals", [1, 2])
def test_how_a_busy_worker_ends(queue: Queue, client: redis.Redis, redis_url: str, tmp_path: Path, signals: int) -> None:
    begun = tmp_path / "begun"
    job = queue.enqueue(tasks.nap_once, str(begun), 2 if signals == 1 else 60)
    program = (
        "import redis\nfrom fusion.rq import Worker\n"
        f"worker = Worker(['work'], connection=redis.Redis.from_url({redis_url!r}))\n"
        "try:\n    worker.work()\nexcept SystemExit as error:\n    print('cold', error.code)\n"
        "print(worker._stop_requested, worker.shutdown_requested_date is not None)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, env={**os.environ}, stdout=subprocess.PIPE, text=True
    ) as running:
        eventually(begun.exists, timeout=30)  # Redis says that it has started before its worker is busy
        for _ in range(signals):
            running.send_signal(signal.SIGTERM)
            time.sleep(0.3)
        said, _ = running.communicate(timeout=30)
    assert said == ("True True\n" if signals == 1 else "cold 1\nTrue True\n")
    assert job.get_status() == ("finished" if signals == 1 else "queued")


def test_queues_in_random_order(client: redis.Redis) -> None:
    names = [f"q{number}" for number in range(6)]
    for worker in (RandomWorker(names, connection=client), SimpleWorker(names, connection=client)):
        jobs = [Queue(name, client).enqueue(tasks.add, 1) for _ in range(3) for name in names]
        worker.work(burst=True, dequeue_strategy="default" if isinstance(worker, RandomWorker) else "random")
        ran = [job.origin for job in sorted(jobs, key=lambda job: (job.refresh(), job.started_at)[1])]  # type: ignore[func-returns-value]
        assert sorted(ran) == sorted(names * 3) and ran not in (names * 3, sorted(names * 3))


def test_a_simple_worker_takes_turns(client: redis.Redis) -> None:
    jobs = [Queue(name, client).enqueue(tasks.add, 1) for name in ("a", "a", "b")]
    SimpleWorker(["a", "b"], connection=client).work(max_jobs=2, dequeue_strategy="round_robin")
    assert [job.get_status() for job in jobs] == ["finished", "queued", "finished"]


def test_what_is_due_is_enqueued_by_rqscheduler(queue: Queue, client: redis.Redis) -> None:
    late, first = queue.enqueue_at(PAST, tasks.add, 1), queue.enqueue_at(PAST, tasks.add, 2, at_front=True)
    far = queue.enqueue_in(timedelta(hours=1), tasks.add, 3)
    assert late.is_scheduled and queue.count == 0
    scheduler = RQScheduler([queue], client)
    assert scheduler.acquire_locks() == {"work"} == scheduler.acquired_locks
    scheduler.enqueue_scheduled_jobs()
    assert queue.job_ids == [first.id, late.id] and far.is_scheduled
    queue.scheduled_job_registry.schedule(far, PAST)
    scheduler.enqueue_scheduled_jobs()
    assert far.is_queued
    with pytest.raises(InvalidJobOperation):
        queue.scheduled_job_registry.schedule(far, PAST)
    with pytest.raises(NotImplementedError, match="every worker"):
        scheduler.start()


def test_a_job_for_a_time_in_the_past_is_due_at_the_next_look(queue: Queue, client: redis.Redis) -> None:
    scheduler = RQScheduler([queue], client)
    for n in range(100):
        job = queue.enqueue_at(PAST, tasks.add, n)
        scheduler.enqueue_scheduled_jobs()
        assert job.is_queued


def test_a_draft_is_scheduled(queue: Queue, client: redis.Redis) -> None:
    draft = Job.create(tasks.add, (1,), connection=client)
    due = datetime(2030, 1, 1, tzinfo=timezone.utc)
    assert queue.scheduled_job_registry.schedule(draft, due) == 1
    assert (
        queue.scheduled_job_registry.get_scheduled_time(draft) == due == queue.scheduled_job_registry.get_expiration_time(draft)
    )
    assert queue.scheduled_job_registry.schedule(draft, due + timedelta(hours=1)) == 0


def test_unique_needs_an_id_and_goes_with_no_parent_and_no_limit(queue: Queue) -> None:
    parent = queue.enqueue(tasks.add, 1, job_id="parent", unique=True)
    for job in (queue.create_job(tasks.add), Job.create(tasks.add, connection=queue.connection)):
        with pytest.raises(ValueError, match="explicit job_id"):
            queue.enqueue_job(job, unique=True)
        with pytest.raises(ValueError, match="explicit job_id"):
            queue.schedule_job(job, PAST, unique=True)
    with pytest.raises(ValueError, match="dependencies"):
        queue.enqueue(tasks.add, job_id="child", depends_on=parent, unique=True)
    with pytest.raises(ValueError, match="rate-limited jobs"):
        queue.enqueue(tasks.add, job_id="limited", rate_limit=RateLimit("key", 1), unique=True)
    assert queue.job_ids == ["parent"]


def test_a_job_without_a_timeout_has_that_of_its_queue(client: redis.Redis) -> None:
    queue = RQQueue("work", client, default_timeout=15)
    job = Job.create(tasks.add, (1,), connection=client)
    assert job.timeout is None
    assert queue.enqueue_job(job).timeout == 15 == Job.fetch(job.id, client).timeout
    with pytest.raises(ValueError, match="-1 for infinite"):
        queue.enqueue(tasks.add, job_timeout=0)


def test_retries_are_set_on_a_draft(client: redis.Redis, queue: Queue, burst: Burst) -> None:
    job = Job.create(tasks.fail, connection=client)
    job.retries_left, job.retry_intervals, job.enqueue_at_front_on_retry = 1, [0], True
    job.save()
    again = Job.fetch(job.id, client)
    assert (again.retries_left, again.retry_intervals, again.enqueue_at_front_on_retry) == (1, [0], True)
    queue.enqueue_job(again)
    burst()
    again.refresh()
    assert again.is_failed and again.number_of_retries == 1


def test_callbacks_are_called_by_hand(queue: Queue, client: redis.Redis) -> None:
    job = queue.enqueue(tasks.add, 1, on_success=tasks.note_success, on_failure=tasks.note_failure)
    execute_success_callback(job, UnixSignalDeathPenalty, 7)
    execute_failure_callback(job, UnixSignalDeathPenalty, ValueError, ValueError("no"), None)
    execute_stopped_callback(job, UnixSignalDeathPenalty)
    assert (client.get(f"success:{job.id}"), client.get(f"failure:{job.id}")) == (b"7 queued", b"ValueError no False")
    coroutine = queue.enqueue(tasks.add, 1, on_success=tasks.soon)
    with pytest.raises(TypeError, match="coroutine"):
        execute_success_callback(coroutine, UnixSignalDeathPenalty, 7)


def test_a_failure_of_a_queue_that_runs_at_once_is_a_result(client: redis.Redis) -> None:
    job = RQQueue("work", client, is_async=False).enqueue(tasks.fail)
    result = job.latest_result()
    assert result is not None and result.type is result.Type.FAILED and "ValueError: no" in (result.exc_string or "")


@pytest.mark.parametrize("prefix", ["app%s", 'team"x', "rq\n", ""])
def test_a_prefix_that_rq_refuses(prefix: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import fusion.rq"],
        env={**os.environ, "RQ_KEY_PREFIX": prefix},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "Invalid RQ_KEY_PREFIX" in done.stderr
