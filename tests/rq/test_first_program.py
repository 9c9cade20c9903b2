"""What nearly every program for RQ does: enqueue, work, look."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from fusion.exceptions import ConfigurationError
from fusion.rq import Queue, Worker
from fusion.rq.exceptions import NoSuchJobError
from fusion.rq.job import Job, JobStatus
from fusion.settings import use_settings
from tests.rq import tasks_of_rq as tasks

Burst = Callable[..., bool]


def test_a_queue_talks_to_no_redis() -> None:
    queue = Queue("work", connection=redis.Redis(host="no.such.host"))
    assert queue.name == "work" and queue.is_async


def test_a_job_runs_and_is_found(queue: Queue, burst: Burst, client: redis.Redis) -> None:
    job = queue.enqueue(tasks.add, 1, b=2, job_id="one", meta={"who": "me"}, description="sum")
    assert (job.id, job.origin, job.get_status()) == ("one", "work", "queued")
    assert len(queue) == 1 and queue.job_ids == ["one"]

    assert burst()

    found = Job.fetch("one", connection=client)
    assert isinstance(found, Job)
    assert found.get_status() is JobStatus.FINISHED and found.is_finished
    assert (found.result, found.return_value(), found.args, found.kwargs) == (3, 3, (1,), {"b": 2})
    assert (found.meta, found.description, found.func_name) == ({"who": "me"}, "sum", "tests.rq.tasks_of_rq.add")
    assert queue.count == 0 and not burst()


def test_only_keywords_of_rqs_are_options(queue: Queue, burst: Burst) -> None:
    job = queue.enqueue(tasks.given, priority=2, rate=0.5, batch=7, unique_key="k", job_timeout=30)
    assert job.timeout == 30
    burst()
    assert job.result == [[], {"priority": 2, "rate": 0.5, "batch": 7, "unique_key": "k"}]


def test_a_failed_job_is_not_tried_again(queue: Queue, burst: Burst) -> None:
    job = queue.enqueue(tasks.fail)
    burst()
    assert job.is_failed
    job.refresh()
    assert "ValueError: no" in (job.exc_info or "") and job.retries_left is None


def test_the_current_job_reports(queue: Queue, burst: Burst) -> None:
    job = queue.enqueue(tasks.progress)
    burst()
    assert job.result == [job.id, job.id, "started", "work"]
    assert job.get_meta() == {"progress": 50}


def test_the_current_job_opens_a_connection(queue: Queue, burst: Burst, client: redis.Redis) -> None:
    job = queue.enqueue(tasks.by_connection, "seen")
    burst()
    assert job.result == "dict" and client.get("seen") == job.id.encode()


def test_callbacks_have_a_connection(queue: Queue, burst: Burst, client: redis.Redis) -> None:
    good = queue.enqueue(tasks.add, 1, on_success=tasks.note_success)
    bad = queue.enqueue(tasks.fail, on_failure=tasks.note_failure)
    burst()
    assert client.get(f"success:{good.id}") == b"1 finished"
    assert client.get(f"failure:{bad.id}") == b"ValueError no True"


def test_a_result_that_cannot_be_stored(queue: Queue, burst: Burst) -> None:
    job = queue.enqueue(tasks.odd)
    burst()
    assert job.is_finished and job.result == "Unserializable return value"


def test_a_worker_without_allow_list_does_not_start(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSION_TASKS")
    use_settings(None)
    with pytest.raises(ConfigurationError, match="FUSION_TASKS="):
        Worker([queue]).work(burst=True)


def test_an_unknown_job(client: redis.Redis, queue: Queue) -> None:
    with pytest.raises(NoSuchJobError):
        Job.fetch("none", connection=client)
    assert queue.fetch_job("none") is None


def test_errors_of_redis_are_of_both_families() -> None:
    queue = Queue(connection=redis.Redis(port=1, socket_connect_timeout=1))
    with pytest.raises(redis.RedisError) as caught:
        queue.enqueue(tasks.add, 1)
    assert isinstance(caught.value, redis.ConnectionError)


def test_meta_that_was_saved_is_not_read_back_too_soon(queue: Queue, burst: Burst) -> None:
    jobs = [queue.enqueue(tasks.remember, "a", str(n), meta={"first": True}) for n in range(3)]
    burst()
    assert [(job.result, job.get_meta()) for job in jobs] == [(str(n), {"first": True, "a": str(n)}) for n in range(3)]


def test_the_meaning_of_rq_is_stored_with_the_job(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    job = queue.enqueue(tasks.add, 1)
    assert (job._text("on_lost"), job._seconds("failure_ttl"), job._policy) == ("fail", 31536000, None)
    assert job.failure_ttl is None, "RQ has None where the program gave none"
    assert '"as": "rq"' in job._text("retry")
    monkeypatch.setenv("FUSION_RQ_DEFAULTS", "0")
    fusions = queue.enqueue(tasks.add, 1)
    assert (fusions._text("on_lost"), fusions.failure_ttl, fusions._text("retry")) == ("", None, "")
