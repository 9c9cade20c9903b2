"""Looking at the schedule: pages of all queues, in the order of what is due."""

from __future__ import annotations

import datetime as dt

import pytest
import redis

from fusion import Connection, Job, Queue, ScheduledJobRegistry
from fusion.exceptions import NoSuchJobError
from tests.jobs import basic
from tests.kit.hands import wire

SCHEDULED = "rq:scheduler:scheduled_jobs"
HOUR = dt.timedelta(hours=1)


def test_an_empty_schedule(conn: redis.Redis) -> None:
    registry = ScheduledJobRegistry()
    assert (registry.count, len(registry), registry.get_job_ids(), registry.get_jobs(), registry.entries()) == (0, 0, [], [], [])
    with pytest.raises(NoSuchJobError, match="no scheduled job 'nobody'"):
        registry.get_scheduled_time("nobody")


def test_pages_of_all_queues_the_soonest_first(conn: redis.Redis) -> None:
    base = dt.datetime.now(dt.timezone.utc).replace(microsecond=0) + HOUR
    for n in (3, 0, 4, 1, 2):
        Queue(("sms", "email")[n % 2]).enqueue_at(base + n * HOUR, basic.noop, job_id=f"j{n}")
    queued = Queue("sms").enqueue(basic.noop)
    registry = ScheduledJobRegistry(conn)
    assert (registry.count, len(registry)) == (5, 5)
    assert registry.get_job_ids() == [f"j{n}" for n in range(5)]
    assert registry.get_job_ids(1, 2) == ["j1", "j2"]
    assert registry.get_job_ids(4, 100) == ["j4"]
    assert registry.get_job_ids(0, 0) == registry.get_job_ids(5) == []
    assert [(job.id, job.origin) for job in registry.get_jobs(0, 2)] == [("j0", "sms"), ("j1", "email")]
    assert registry.entries(3, 5) == [("j3", base + 3 * HOUR), ("j4", base + 4 * HOUR)]
    assert registry.get_scheduled_time("j2") == registry.get_scheduled_time(Job.fetch("j2")) == base + 2 * HOUR
    with pytest.raises(NoSuchJobError):
        registry.get_scheduled_time(queued)


def test_a_page_costs_one_round_trip_and_not_more_than_a_page(conn: redis.Redis) -> None:
    conn.zadd(SCHEDULED, {f"j{n:05}": n for n in range(10_000)})
    registry = ScheduledJobRegistry(conn)
    conn.config_resetstat()
    with wire(conn) as sent:
        assert registry.entries(5000, 3) == [
            (f"j0500{n}", dt.datetime.fromtimestamp(5000 + n, dt.timezone.utc)) for n in range(3)
        ]
        assert registry.count == 10_000
    assert sent == ["ZRANGE", "ZCARD"]
    assert int(conn.info("stats")["total_net_output_bytes"]) < 5000


def test_whatever_an_outsider_wrote_there_can_be_listed(conn: redis.Redis) -> None:
    conn.zadd(SCHEDULED, {"never": float("inf"), "always": float("-inf"), "in ms": 1_769_851_800_000, "no job": 5})
    registry = ScheduledJobRegistry()
    assert [job_id for job_id, _ in registry.entries()] == ["always", "no job", "in ms", "never"]
    assert registry.get_jobs() == []
    assert registry.get_scheduled_time("never").year == 9999
    assert registry.get_scheduled_time("always").year == 1970


def test_the_schedule_follows_the_current_connection(conn: redis.Redis, redis_url: str) -> None:
    registry = ScheduledJobRegistry()
    with Connection(redis_url.replace("db=0", "db=3")):
        Queue("sms").enqueue_in(HOUR, basic.noop)
        assert len(registry) == 1
    assert len(registry) == 0
