"""Calls by templates when something goes wrong, and when there are several at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from fusion import Job, Queue, QueueFull, StoreUnavailable
from fusion.decorators import job as task
from fusion.store.client.connections import connect
from tests.jobs import basic
from tests.kit.servers import ScriptedServer

PATH = "tests.jobs.basic.noop"


@task("sms", timeout="5m", priority="high")
def marked(*args: Any, **kwargs: Any) -> None:
    return None


def test_a_server_that_forgot_the_script(conn: redis.Redis, general: list[str]) -> None:
    queue = Queue("sms", conn)
    queue.enqueue(basic.noop)
    conn.script_flush()
    job = queue.enqueue(basic.noop, "again")
    assert queue.count == 2
    assert Job.fetch(job.id, conn).args == ("again",)
    assert len(general) == 1


def test_a_full_queue(conn: redis.Redis) -> None:
    queue = Queue("sms", conn)
    queue.set_max_length(3)
    for _ in range(3):
        queue.enqueue(basic.noop)
    with pytest.raises(QueueFull) as caught:
        queue.enqueue(basic.noop)
    assert (caught.value.queue, queue.count) == ("sms", 3)


@pytest.mark.parametrize("own", [{}, {"job_id": "given", "meta": {"a": 1}}], ids=str)
def test_an_error_of_a_call_by_a_template_can_be_repeated(own: dict[str, Any]) -> None:
    at = b"*2\r\n$2\r\nok\r\n$27\r\n2026-01-01T00:00:00.000000Z\r\n"
    server = ScriptedServer(lambda n: None if 2 <= n <= 5 else at)
    with connect(server.url) as client:
        queue = Queue("sms", client)
        queue.enqueue(basic.noop, "first")
        queue.enqueue(basic.noop, "first", **own)
        with pytest.raises(StoreUnavailable) as caught:
            queue.enqueue(basic.noop, "second", **own)
        assert server.commands == 6, "as many tries as ever"
        assert not caught.value.nothing_written
        (job_id,) = caught.value.job_ids
        assert job_id == own.get("job_id", job_id)
        job = caught.value.repeat()
        assert (job.id, job.args, job.meta) == (job_id, ("second",), own.get("meta", {}))
        assert isinstance(caught.value.__cause__, redis.ConnectionError)
    server.close()


def test_a_server_that_does_not_answer_at_all(redis_url: str) -> None:
    server = ScriptedServer(lambda n: b"*2\r\n$2\r\nok\r\n$27\r\n2026-01-01T00:00:00.000000Z\r\n")
    with connect(server.url) as client:
        queue = Queue("sms", client)
        queue.enqueue(basic.noop)
        server.close()
        client.connection_pool.disconnect()
        with pytest.raises(StoreUnavailable) as caught:
            queue.enqueue(basic.noop)
        assert caught.value.nothing_written


# -- several at once


def test_threads_at_once(conn: redis.Redis) -> None:
    queue = Queue("sms", conn)
    functions: list[Any] = [basic.noop, PATH, basic.echo]

    def some(nth: int) -> list[tuple[str, tuple[Any, ...]]]:
        found = []
        for n in range(60):
            job = queue.enqueue(functions[n % 3], f"{nth}-{n}", priority=n % 3) if n % 2 else marked.delay(f"{nth}-{n}")
            found.append((job.id, job.args))
        return found

    with ThreadPoolExecutor(8) as threads:
        sent = [one for part in threads.map(some, range(8)) for one in part]
    assert len(dict(sent)) == queue.count == 480
    assert {job.id: job.args for job in Job.fetch_many(dict(sent), conn) if job is not None} == dict(sent)
    assert len({args for _, args in sent}) == 480
