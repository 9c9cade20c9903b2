"""What runs in the program's own process: SimpleWorker, and queues with is_async=False."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest
import redis

from fusion.rq import Queue, Retry, SimpleWorker, Worker, get_current_job
from fusion.rq.job import Job
from fusion.settings import use_settings
from tests.rq import tasks_of_rq as tasks

Burst = Callable[..., bool]


def test_a_simple_worker_runs_jobs_here(queue: Queue, client: redis.Redis) -> None:
    here, meta = queue.enqueue(tasks.here), queue.enqueue(tasks.remember, "a", "b")
    good = queue.enqueue(tasks.add, 1, on_success=tasks.note_success)
    bad = queue.enqueue(tasks.fail, retry=Retry(max=1), on_failure=tasks.note_failure)
    late = queue.enqueue(tasks.nap, 9, job_timeout=1)
    child = queue.enqueue(tasks.add, 5, depends_on=good)

    assert SimpleWorker([queue], connection=client).work(burst=True)

    assert here.result == os.getpid()
    assert (meta.result, meta.get_meta()) == ("b", {"a": "b"})
    assert (good.result, child.result) == (1, 5)
    assert client.get(f"success:{good.id}") == b"1 finished"
    bad.refresh()
    assert bad.is_failed and bad.retries_left == 0 and client.get(f"failure:{bad.id}") == b"ValueError no True"
    assert late.is_failed and "JobTimeoutException" in (late.exc_info or "")
    assert get_current_job() is None and Worker.count(client) == 0
    assert not SimpleWorker([queue], connection=client).work(burst=True)


def test_a_simple_worker_that_would_serve_for_ever_is_refused(queue: Queue) -> None:
    with pytest.raises(NotImplementedError, match="use Worker, or `fusion worker --executor thread`"):
        SimpleWorker([queue]).work()


def test_a_simple_worker_without_burst_waits_for_its_jobs(queue: Queue) -> None:
    first = queue.enqueue(tasks.add, 1)
    later = threading.Timer(0.5, lambda: queue.enqueue(tasks.add, 2))
    later.start()
    assert SimpleWorker([queue]).work(max_jobs=2)
    later.join()
    assert first.is_finished and len(queue.finished_job_registry) == 2
    assert not SimpleWorker([queue]).work(max_jobs=1, max_idle_time=1)


def test_a_job_that_is_performed_here_is_the_current_job_and_gets_what_was_given(client: redis.Redis) -> None:
    found: list[object] = []
    job = Job.create(tasks.append_itself, (found,), connection=client)
    assert job.perform() == 42
    assert found == [job] and found[0] is job and get_current_job() is None


def test_max_jobs_of_a_simple_worker(queue: Queue) -> None:
    jobs = [queue.enqueue(tasks.add, n) for n in range(3)]
    SimpleWorker([queue]).work(burst=True, max_jobs=2)
    assert [job.get_status() for job in jobs] == ["finished", "finished", "queued"]


@pytest.fixture
def no_scripts(client: redis.Redis) -> redis.Redis:
    """A client that may run no script, as one of a fake Redis without Lua."""
    client.acl_setuser("plain", enabled=True, nopass=True, categories=["+@all", "-@scripting"], keys=["*"], channels=["*"])
    options = {**client.connection_pool.connection_kwargs, "username": "plain", "password": "x"}
    plain = redis.Redis(connection_pool=type(client.connection_pool)(client.connection_pool.connection_class, **options))
    with pytest.raises(redis.exceptions.NoPermissionError):
        plain.eval("return 1", 0)
    return plain


def test_a_queue_that_runs_its_jobs_at_once(no_scripts: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSION_TASKS")
    use_settings(None)
    queue = Queue("work", is_async=False, connection=no_scripts)
    job = queue.enqueue(tasks.add, 1, b=2, on_success=tasks.note_success)
    assert job.is_finished and job.result == 3 and job.return_value() == 3
    assert Job.fetch(job.id, no_scripts).result == 3 and 0 < no_scripts.ttl(f"rq:job:{job.id}") <= 500
    assert no_scripts.get(f"success:{job.id}") == b"3 finished"
    assert queue.enqueue(tasks.soon, 4).result == 4
    assert queue.enqueue(tasks.odd).result == "Unserializable return value"
    assert queue.enqueue(tasks.here).result == os.getpid()
    assert get_current_job() is None


def test_a_job_that_fails_at_once(no_scripts: redis.Redis) -> None:
    queue = Queue(is_async=False, connection=no_scripts)
    job = queue.enqueue(tasks.fail, on_failure=tasks.note_failure)
    assert job.is_failed and "ValueError: no" in (job.exc_info or "")
    assert no_scripts.get(f"failure:{job.id}") == b"ValueError no True"
    gone = queue.enqueue(tasks.add, 1, result_ttl=0)
    assert not Job.exists(gone.id, no_scripts)


def test_meta_of_a_job_that_runs_at_once(client: redis.Redis) -> None:
    job = Queue(is_async=False, connection=client).enqueue(tasks.remember, "a", "b")
    assert (job.result, Job.fetch(job.id, client).meta) == ("b", {"a": "b"})


def test_exception_handlers_run_in_the_jobs_process(queue: Queue, client: redis.Redis) -> None:
    job = queue.enqueue(tasks.fail)
    Worker([queue], exception_handlers=[tasks.first_handler, tasks.last_handler]).work(burst=True)
    assert client.lrange("handled", 0, -1) == [b"last no", f"first {job.id} ValueError".encode()]
    assert job.is_failed


def test_an_exception_handler_that_raises_changes_nothing(queue: Queue) -> None:
    job = queue.enqueue(tasks.fail)
    SimpleWorker([queue], exception_handlers=tasks.broken_handler).work(burst=True)
    job.refresh()
    assert job.is_failed and "RuntimeError: handler" in job.callback_error


def test_an_exception_handler_that_no_process_can_import(queue: Queue) -> None:
    with pytest.raises(ValueError, match="function of a module"):
        Worker([queue], exception_handlers=[lambda *error: None])
