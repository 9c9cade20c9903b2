"""The operator's cron task for failed jobs, called as a function and as a job."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from fusion import FailedQueue, Job, Queue
from fusion.exceptions import ConfigurationError
from fusion.store.access import broker_of
from tasks.maintenance import run_maintenance_on_failed_queue
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand
from tests.kit.workers import Workers

TRANSIENT = {
    "error_class": "tasks.providers.base.ProviderUnavailable",
    "error_bases": "builtins.ConnectionError\nbuiltins.OSError",
}
FINAL = {"error_class": "tasks.providers.base.InvalidPayload", "error_bases": "builtins.ValueError"}


def fail(conn: redis.Redis, job_id: str, fields: dict[str, str]) -> None:
    if not Job.exists(job_id):
        Queue("sms").enqueue("tasks.sms.sendSMS", {}, job_id=job_id)
    hand = Hand(broker_of(conn), "sms", name=f"hand.{job_id}")
    claimed = hand.take()
    assert claimed.id == job_id
    hand.tell(claimed, "failed", reason="E", fields=fields)
    hand.broker.deregister(hand.name, hand.incarnation)


def test_recent_transient_failures_are_requeued(conn: redis.Redis) -> None:
    for job_id, fields in (("transient", TRANSIENT), ("final", FINAL), ("old", TRANSIENT), ("aside", TRANSIENT)):
        fail(conn, job_id, fields)
    conn.hset("rq:job:old", "ended_at", "2026-01-01T00:00:00.000000Z")
    FailedQueue().quarantine("aside", "by hand")
    conn.set("rq:job:broken", "no hash")
    conn.zadd("rq:queue:failed", {"broken": 9e9})
    assert run_maintenance_on_failed_queue() == {"requeued": 1, "quarantined": 0, "left": 3, "refused": {}}
    assert Job.fetch("transient").is_queued
    assert run_maintenance_on_failed_queue() == {"requeued": 0, "quarantined": 0, "left": 3, "refused": {}}
    conn.delete("rq:job:broken")
    conn.zrem("rq:queue:failed", "broken")
    states = check_conservation(conn, ["transient", "final", "old", "aside"])
    assert states == {"transient": "queued", "final": "failed", "old": "failed", "aside": "failed"}


def test_a_job_that_fails_repeatedly_is_quarantined(conn: redis.Redis) -> None:
    fail(conn, "a", TRANSIENT)
    for _ in range(2):
        assert run_maintenance_on_failed_queue(max_times=2)["requeued"] == 1
        fail(conn, "a", TRANSIENT)
    assert run_maintenance_on_failed_queue(max_times=2) == {"requeued": 0, "quarantined": 1, "left": 0, "refused": {}}
    assert Job.fetch("a").quarantined == "failed again after it was put back 2 times"
    assert FailedQueue().requeue_all() == (0, {})


def test_a_limit(conn: redis.Redis) -> None:
    for job_id in ("a", "b", "c"):
        fail(conn, job_id, TRANSIENT)
    assert run_maintenance_on_failed_queue(limit=2) == {"requeued": 2, "quarantined": 0, "left": 1, "refused": {}}


def test_as_a_job(conn: redis.Redis, workers: Workers, tmp_path: Path) -> None:
    fail(conn, "a", TRANSIENT)
    job = Queue("maintenance").enqueue(run_maintenance_on_failed_queue, max_age_hours=1)
    workers.burst("maintenance", env={"FUSION_TASKS": "tasks.maintenance"})
    job.refresh()
    assert job.result == {"requeued": 1, "quarantined": 0, "left": 0, "refused": {}}
    assert Job.fetch("a").is_queued


def test_in_a_job_whose_redis_it_can_not_find(conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather nothing than another fleet's jobs."""
    from fusion import context

    fail(conn, "a", TRANSIENT)
    monkeypatch.setattr(context, "_of_process", [context.CurrentJob({b"id": b"of-another-redis"})])
    with pytest.raises(ConfigurationError, match="FUSION_REDIS_URL"):
        run_maintenance_on_failed_queue()
    assert Job.fetch("a").is_failed
