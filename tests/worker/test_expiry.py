"""P14: a job whose ttl is over ends within a second, and its event says so, whatever process of the fleet is there."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from fusion import Job, Queue, Retry
from fusion.store.write.broker import Broker
from tests.jobs import basic
from tests.kit.promises import claim
from tests.kit.schedulers import Schedulers
from tests.kit.waiting import eventually, unhurried
from tests.kit.workers import Workers, process_per_job

MODES = [
    pytest.param((), marks=process_per_job("the other case"), id="process per job"),
    pytest.param(("--horses", "1"), id="warm"),
]


def within() -> float:
    """Seconds after its time in which it ends, and what a busy machine may take."""
    return 1.0 + unhurried(1.0)


def lateness(conn: redis.Redis, job_id: str) -> float:
    """Seconds from the end of its ttl to its event, by the server's clock."""

    def told() -> list[int]:
        return [int(entry.split(b"-")[0]) for entry, event in conn.xrange("rq:events") if _is(event, job_id)]

    eventually(told, timeout=15)
    return (told()[0] - int(conn.hget(f"rq:job:{job_id}", "expires_at"))) / 1000


def _is(event: dict[bytes, bytes], job_id: str) -> bool:
    return (event[b"event"], event[b"job_id"]) == (b"expired", job_id.encode())


@claim("P14")
@pytest.mark.parametrize("flags", MODES)
def test_behind_a_long_job(workers: Workers, conn: redis.Redis, flags: tuple[str, ...]) -> None:
    """The one slot is busy for longer: it ends in time, and its handler is called."""
    long = Queue("sms").enqueue(basic.sleep, 20)
    workers.start("sms", *flags)
    eventually(lambda: Job.fetch(long.id).get_status() == "started")
    late = Queue("sms").enqueue(basic.noop, ttl=1, failed_task_handler="https://gone.example/hook")
    assert 0 <= lateness(conn, late.id) < within()
    assert Job.fetch(long.id).get_status() == "started"
    assert (Job.fetch(late.id).get_status(), Job.fetch(late.id).reason) == ("canceled", "expired")
    (delivery,) = conn.zrange("rq:queue:_callbacks", 0, -1) + conn.zrange("rq:wip:_callbacks", 0, -1) + _retrying(conn)
    assert late.id.encode() in conn.hget(b"rq:job:" + delivery, "data")


def _retrying(conn: redis.Redis) -> list[bytes]:
    return [job_id for job_id in conn.zrange("rq:scheduler:scheduled_jobs", 0, -1) if job_id.startswith(b"cb-")]


@claim("P14")
@pytest.mark.long
def test_in_queues_that_are_paused_suspended_or_served_by_nobody(workers: Workers, conn: redis.Redis) -> None:
    workers.start("sms")
    Broker(conn).pause("sms")
    paused, unserved = Queue("sms").enqueue(basic.noop, ttl=1), Queue("nobody").enqueue(basic.noop, ttl=1)
    later = Queue("nobody").enqueue_in(0.5, basic.noop, ttl=1)
    assert [0 <= lateness(conn, job.id) < within() for job in (paused, unserved, later)] == [True] * 3
    Broker(conn).suspend()
    suspended = Queue("email").enqueue(basic.noop, ttl=1)
    assert 0 <= lateness(conn, suspended.id) < within()


@claim("P14")
def test_by_a_scheduler_alone(conn: redis.Redis, redis_url: str, tmp_path: Path) -> None:
    """It had nothing to wait for, and nobody rings for it."""
    schedulers = Schedulers(redis_url, tmp_path)
    try:
        schedulers.start()
        eventually(lambda: any(client["cmd"] == "blpop" for client in conn.client_list()))
        assert 0 <= lateness(conn, Queue("sms").enqueue(basic.noop, ttl=1).id) < within()
    finally:
        schedulers.stop()


@pytest.mark.long
def test_what_waits_for_its_retry(workers: Workers, conn: redis.Redis) -> None:
    workers.start("sms")
    job = Queue("sms").enqueue(basic.boom, ttl=3, retry=Retry(3, interval=100))
    assert 0 <= lateness(conn, job.id) < within()
    assert Job.fetch(job.id).attempts == 1
