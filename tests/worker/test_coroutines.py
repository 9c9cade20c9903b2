"""Coroutine functions under the executor asyncio: whatever a job can do, they can."""

from __future__ import annotations

import signal

import pytest
import redis

from fusion import Callback, Job, Queue
from fusion.retry import Retry
from tests.kit.hands import events_of
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, status_of
from tests.kit.workers import Workers

ENV = {"FUSION_TASKS": "tests.jobs.coroutines"}
TASKS = "tests.jobs.coroutines"


def _ended(conn: redis.Redis, job: Job, status: str = "finished") -> Job:
    eventually(lambda: status_of(conn, job.id) == status, why=f"{job.func_name} is {status}, not {status_of(conn, job.id)}")
    return Job.fetch(job.id, conn)


def test_they_can_do_whatever_a_job_can(workers: Workers, conn: redis.Redis) -> None:
    worker, queue = workers.start("a", "--executor", "asyncio", env=ENV), Queue("a", conn)
    speaks = queue.enqueue_call(f"{TASKS}.speaks")
    child = queue.enqueue_call(f"{TASKS}.child_knows")
    again = queue.enqueue_call(f"{TASKS}.fails_once", retry=Retry(max=2, interval=0))
    producer = queue.enqueue_call(f"{TASKS}.enqueues", ("a",))
    called = queue.enqueue_call(f"{TASKS}.returns", (3,), on_success=Callback(f"{TASKS}.succeeded"))
    raises = queue.enqueue_call(f"{TASKS}.raises", on_failure=Callback(f"{TASKS}.failed"))
    computes = queue.enqueue_call(f"{TASKS}.computes", (1000,))
    missing = queue.enqueue_call(f"{TASKS}.returns", ("too", "many"))
    assert (_ended(conn, speaks).result, Job.fetch(speaks.id, conn).meta) == (speaks.id, {"stage": "last"})
    assert _ended(conn, child).result == [child.id] * 4
    assert _ended(conn, again).result == "the second time"
    assert _ended(conn, Job.fetch(_ended(conn, producer).result, conn)).result == 5
    assert _ended(conn, called).meta == {"called back": 3}
    assert _ended(conn, raises, "failed").meta == {"called back": "no"}
    assert "in raises" in field(conn, raises.id, "exc_info")
    assert "asyncio_horse" not in field(conn, raises.id, "exc_info")
    assert _ended(conn, computes).result == sum(range(1000))
    assert "TypeError" in field(conn, _ended(conn, missing, "failed").id, "exc_info")
    steps = queue.enqueue_call(f"{TASKS}.steps", (100,))
    eventually(lambda: status_of(conn, steps.id) == "started")
    worker.signal(signal.SIGTERM)
    assert worker.wait(10) == 0, worker.output
    assert status_of(conn, steps.id) == "queued"
    assert [event["event"] for event in events_of(conn, steps.id)][-1] == "released"
    assert int(field(conn, steps.id, "cursor")) > 0


@pytest.mark.long
@pytest.mark.parametrize("executor", ["process", "asyncio"])
def test_a_group_of_errors_is_retried_and_a_group_that_gives_way_goes_back(
    executor: str, workers: Workers, conn: redis.Redis
) -> None:
    worker, queue = workers.start("a", "--executor", executor, env=ENV), Queue("a", conn)
    again = queue.enqueue_call(f"{TASKS}.group_fails_once", retry=Retry(max=2, interval=0, on=[ConnectionError, TimeoutError]))
    once = queue.enqueue_call(f"{TASKS}.group_fails_once", retry=Retry(max=2, interval=0, on=ConnectionError))
    assert _ended(conn, again).result == "the second time"
    assert _ended(conn, once, "failed").error_class == "builtins.ConnectionError"
    assert "the first in ExceptionGroup" in field(conn, once.id, "reason")
    steps = queue.enqueue_call(f"{TASKS}.group_of_steps", (100,))
    eventually(lambda: status_of(conn, steps.id) == "started")
    worker.signal(signal.SIGTERM)
    assert worker.wait(10) == 0, worker.output
    assert status_of(conn, steps.id) == "queued", field(conn, steps.id, "reason")


@pytest.mark.long
def test_a_stop_while_its_worker_ends_gets_through(workers: Workers, conn: redis.Redis) -> None:
    worker, queue = workers.start("a", "--executor", "asyncio", env={"FUSION_TASKS": "tests.jobs.crowd"}), Queue("a", conn)
    job = queue.enqueue_call("tests.jobs.crowd.nap", ("/dev/null", 60.0))
    eventually(lambda: status_of(conn, job.id) == "started")
    worker.signal(signal.SIGTERM)
    worker.says("warm shutdown")
    assert job.stop() == "pending"
    assert worker.wait(10) == 0, worker.output
    assert status_of(conn, job.id) == "stopped"
