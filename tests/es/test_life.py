"""A job's whole life, from the worker through a real relay, read back from a real Elasticsearch."""

from __future__ import annotations

from pathlib import Path

import redis

from fusion import Queue, Retry
from fusion.store.read.event_inspector import EventInspector
from tests.es.conftest import RealServer
from tests.kit.relays import Relays
from tests.kit.waiting import eventually
from tests.kit.workers import Workers
from tests.relay.harness import is_delivered


def test_queued_processing_retry_processing_completed(
    real: RealServer, index: str, relays: Relays, workers: Workers, conn: redis.Redis, tmp_path: Path
) -> None:
    """The relay is killed in between and another goes on: nothing is there twice."""
    env = {"FUSION_ELASTICSEARCH_URL": real.url, "FUSION_ELASTICSEARCH_INDEX": index}
    first = relays.start(env=env, ready=False)
    runs = str(tmp_path / "runs")
    options = {"retry": Retry(max=1, interval=0.01), "log_tag": "SMS_OTP"}
    again = Queue("sms", conn).enqueue("tests.jobs.basic.flaky", runs, 1, **options)
    eventually(lambda: is_delivered(EventInspector(conn), "elasticsearch"), 30, why="the first is delivered")
    first.kill()
    bad = Queue("sms", conn).enqueue("tests.jobs.basic.boom", "it has 123456 in it", log_tag="SMS_OTP")
    workers.start("sms", "--no-relay")
    assert [job.wait(20) for job in (again, bad)] == ["finished", "failed"]
    relays.start(env=env, ready=False)
    eventually(lambda: is_delivered(EventInspector(conn), "elasticsearch"), 40, why="all is delivered")
    found = sorted(real.hits(index).values(), key=lambda document: document["log_time"])
    life = {job.id: [document["status"] for document in found if document["job_id"] == job.id] for job in (again, bad)}
    assert life[again.id] == ["queued", "processing", "retry", "queued", "processing", "completed"]
    assert life[bad.id] == ["queued", "processing", "failed"]
    assert {(document["task"], document["task_type"], document["type"]) for document in found} == {("SMS", "OTP", "logs")}
    assert "123456" not in str(found)
