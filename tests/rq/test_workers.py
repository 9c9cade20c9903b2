"""RQ's Worker: what it shows, how it is commanded, and what a run's end is."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import redis

from fusion.rq import Queue, Worker
from fusion.rq.command import send_shutdown_command, send_stop_job_command
from fusion.rq.decorators import job as job_decorator
from fusion.rq.exceptions import InvalidJobDependency, InvalidJobOperation
from fusion.rq.job import Job
from fusion.rq.suspension import is_suspended, resume, suspend
from fusion.rq.worker import RoundRobinWorker
from tests.kit.waiting import eventually
from tests.rq import tasks_of_rq as tasks

Burst = Callable[..., bool]


def test_queues_are_served_in_their_order(client: redis.Redis) -> None:
    high, low = Queue("high", client), Queue("low", client)
    jobs = [low.enqueue(tasks.add, 1), high.enqueue(tasks.add, 2)]
    Worker(map(Queue, ["high", "low"]), connection=client).work(burst=True, max_jobs=1)
    assert [job.get_status() for job in jobs] == ["queued", "finished"]


def test_a_timeout_is_an_exception_and_comes_once(queue: Queue, burst: Burst) -> None:
    plain, caught = queue.enqueue(tasks.nap, 30, job_timeout=1), queue.enqueue(tasks.swallow, 30, job_timeout=1)
    burst()
    assert plain.is_failed and "JobTimeoutException" in (plain.exc_info or "")
    assert caught.result == "JobTimeoutException"


def test_workers_are_listed_and_commanded(queue: Queue, client: redis.Redis) -> None:
    job = queue.enqueue(tasks.nap, 60)
    found = {}

    def look() -> None:
        other = (
            redis.Redis.from_url(f"unix://{client.connection_pool.connection_kwargs['path']}")
            if ("path" in client.connection_pool.connection_kwargs)
            else redis.Redis(**client.connection_pool.connection_kwargs)
        )
        eventually(lambda: job.is_started)
        (worker,) = Worker.all(connection=other)
        found["state"] = (worker.name, worker.queue_names(), worker.get_state(), worker.get_current_job_id())
        found["counts"] = (Worker.count(other), Worker.count(queue=queue), Worker.count(queue=Queue("none", other)))
        found["same"] = Worker.find_by_key(worker.key, other) == worker
        send_stop_job_command(other, job.id)
        eventually(lambda: job.is_stopped)
        send_shutdown_command(other, worker.name)

    watcher = threading.Thread(target=look)
    watcher.start()
    Worker([queue], name="lister").work(max_idle_time=30)
    watcher.join()
    assert found["state"] == ("lister", ["work"], "busy", job.id)
    assert found["counts"] == (1, 1, 0) and found["same"]
    assert job.id in queue.failed_job_registry  # as in RQ
    assert Worker.all(connection=client) == []


def test_a_job_that_does_not_run_is_not_stopped(queue: Queue, client: redis.Redis) -> None:
    with pytest.raises(InvalidJobOperation):
        send_stop_job_command(client, queue.enqueue(tasks.add, 1).id)


def test_suspension(queue: Queue, client: redis.Redis) -> None:
    suspend(client, ttl=60)
    assert is_suspended(client)
    resume(client)
    assert not is_suspended(client)


def test_the_decorator(client: redis.Redis, burst: Burst) -> None:
    later = job_decorator("work", connection=client, timeout=9)(tasks.add)
    try:
        first = later.delay(1, b=1)
        second = later.enqueue(2, depends_on=first, job_id="second")
        assert (first.timeout, second.id, second.get_status()) == (9, "second", "deferred")
        burst()
        assert (first.result, second.result) == (2, 2)
    finally:
        del tasks.add.delay, tasks.add.enqueue


def test_a_burst_of_suspended_workers_ends(queue: Queue, burst: Burst, client: redis.Redis) -> None:
    queue.enqueue(tasks.add, 1)
    suspend(client)
    assert not burst() and queue.count == 1
    resume(client)
    assert burst()


def test_workers_that_take_turns(client: redis.Redis) -> None:
    jobs = [Queue(name, client).enqueue(tasks.add, 1) for name in ("a", "a", "b")]
    RoundRobinWorker(["a", "b"], connection=client).work(burst=True, max_jobs=2)
    assert [job.get_status() for job in jobs] == ["finished", "queued", "finished"]


def test_a_registration_by_hand(client: redis.Redis) -> None:
    worker = Worker(["work"], name="by-hand", connection=client)
    worker.register_birth()
    with pytest.raises(ValueError, match="by-hand"):
        Worker(["work"], name="by-hand", connection=client).register_birth()
    assert Worker.all(client) == [worker]
    worker.register_death()
    assert Worker.all(client) == []


def test_a_parent_that_is_not_enqueued(queue: Queue, client: redis.Redis) -> None:
    parent = Job.create(tasks.add, (1,), connection=client)
    parent.save()
    with pytest.raises(InvalidJobDependency, match="enqueue it first"):
        queue.enqueue(tasks.add, 1, depends_on=parent)
