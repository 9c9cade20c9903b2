"""Clients that the application made, with options of its own: half of all have `decode_responses=True`. Every call works, and Redis holds
what Fusion's own client would have written."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
import redis
from redis import asyncio as aredis
from redis.backoff import NoBackoff
from redis.retry import Retry as TheirRetry

from fusion import (
    AsyncQueue,
    Connection,
    FailedQueue,
    Job,
    Queue,
    Retry,
    ScheduledJobRegistry,
    Scheduler,
    pop_connection,
    push_connection,
)
from fusion.exceptions import DuplicateJob, StoreUnavailable
from fusion.log import Log
from fusion.store.access import broker_of, event_broker_of, event_inspector_of, inspector_of, schema_broker_of
from tests.domain.conftest import Bench
from tests.jobs import basic
from tests.kit.hands import Hand

TEXT = "Grüße ☃"


def through(pool: type[redis.ConnectionPool], **options: Any) -> Callable[[str], redis.Redis]:
    return lambda url: redis.Redis(connection_pool=pool.from_url(url, **options))


OPTIONS: dict[str, dict[str, Any]] = {
    "decoding": {"decode_responses": True},
    "RESP3": {"protocol": 3},
    "RESP3, decoding": {"protocol": 3, "decode_responses": True},
    "latin-1": {"encoding": "latin-1"},
    "latin-1, decoding": {"encoding": "latin-1", "decode_responses": True},
    "ascii, strict, decoding": {"encoding": "ascii", "decode_responses": True},
    "one connection": {"single_connection_client": True},
    "one connection, decoding": {"single_connection_client": True, "decode_responses": True},
    "its own retries": {"retry": TheirRetry(NoBackoff(), 2), "decode_responses": True},
    "health checks": {"health_check_interval": 1, "decode_responses": True},
}
CLIENTS: dict[str, Callable[[str], redis.Redis]] = {
    **{name: (lambda url, given=given: redis.Redis.from_url(url, **given)) for name, given in OPTIONS.items()},
    "by its url": lambda url: redis.Redis.from_url(f"{url}{'&' if '?' in url else '?'}decode_responses=True"),
    "blocking pool of one": through(redis.BlockingConnectionPool, max_connections=1, timeout=1, decode_responses=True),
    "pool of two": through(redis.ConnectionPool, max_connections=2, decode_responses=True),
}


@pytest.fixture(params=CLIENTS)
def theirs(request: pytest.FixtureRequest, redis_url: str) -> Iterator[redis.Redis]:
    if "RESP3" in request.param and redis.__version__.startswith("7."):
        pytest.skip("redis-py 7 itself does not speak RESP3 over a unix socket")
    client = CLIENTS[request.param](redis_url)
    yield client
    client.close()


def test_enqueueing(theirs: redis.Redis, conn: redis.Redis) -> None:
    queue = Queue("sms", theirs)
    job = queue.enqueue(basic.add, 1, b=TEXT, job_id="a", description=TEXT, meta={"text": TEXT}, priority=2)
    assert (job.args, job.kwargs, job.description) == ((1,), {"b": TEXT}, TEXT)
    with pytest.raises(DuplicateJob):
        queue.enqueue(basic.noop, job_id="a")
    many = queue.enqueue_many([queue.prepare_data(basic.noop, [n], job_id=f"m{n}") for n in range(3)])
    assert [one.id for one in many] == ["m0", "m1", "m2"]
    assert queue.enqueue_in(60, basic.noop, job_id="later").get_status() == "scheduled"
    assert queue.enqueue_at(dt.datetime.now(dt.timezone.utc) - dt.timedelta(seconds=1), basic.noop, job_id="now").is_queued
    assert conn.hget("rq:job:a", "description") == TEXT.encode()
    Queue("sms", conn).enqueue(basic.add, 1, b=TEXT, job_id="ours", description=TEXT, meta={"text": TEXT}, priority=2)
    changing = (b"created_at", b"enqueued_at", b"nonce", b"seq")
    a, ours = ({k: v for k, v in conn.hgetall(f"rq:job:{name}").items() if k not in changing} for name in ("a", "ours"))
    assert a == ours


def test_looking(theirs: redis.Redis, conn: redis.Redis) -> None:
    queue = Queue("sms", theirs)
    bench = Bench(conn)
    failed, finished = bench.job("failed"), bench.job("finished")
    queue.enqueue(basic.add, 1, b=TEXT, job_id="a", description=TEXT, meta={"text": TEXT})
    job = Job.fetch("a", theirs)
    assert (job.func_name, job.kwargs, job.description, job.meta) == (
        "tests.jobs.basic.add",
        {"b": TEXT},
        TEXT,
        {"text": TEXT},
    )
    assert (job.get_status(), job.get_position(), job.result, job.scheduled_at()) == ("queued", 0, None, None)
    job.refresh()
    assert Job.exists("a", theirs)
    assert [one and one.id for one in Job.fetch_many(["a", "none"], theirs)] == ["a", None]
    assert (queue.count, len(queue), queue.is_empty(), queue.get_job_ids()) == (1, 1, False, ["a"])
    assert [one.id for one in queue.get_jobs()] == ["a"]
    found = queue.fetch_job("a")
    assert found is not None
    assert found.id == "a"
    assert [one.name for one in Queue.all(theirs)] == ["sms"]
    assert Job.fetch(finished.id, theirs).result == "done"
    assert Job.fetch(finished.id, theirs).wait(1) == "finished"
    mistake = Job.fetch(failed.id, theirs)
    assert (mistake.reason, mistake.exc_info) == ("ValueError: boom", "Traceback")
    assert mistake.attempt_history
    inspector, ours = inspector_of(theirs), inspector_of(conn)
    assert inspector.queues(["sms"]) == ours.queues(["sms"])
    assert inspector.totals() == ours.totals()
    assert [worker.name for worker in inspector.workers()] == ["host.1"]
    assert inspector.table(["a"], ["description"]) == [{"description": TEXT.encode()}]
    assert inspector.members("failed", "") == [failed.id]


def test_changing(theirs: redis.Redis, conn: redis.Redis) -> None:
    queue, bench = Queue("sms", theirs), Bench(conn)
    one, two, three = (bench.job("failed") for _ in range(3))
    line = FailedQueue(theirs)
    assert (line.count, sorted(line.get_job_ids())) == (3, sorted([one.id, two.id, three.id]))
    assert [found.id for found in line.failures()]
    assert line.groups()[0].count == 3
    line.requeue(one.id)
    assert line.requeue_many([two.id]).moved == 1
    assert line.quarantine([three.id], TEXT).moved == 1
    assert Job.fetch(three.id, theirs).quarantined == TEXT
    job = Job.fetch(one.id, theirs)
    job.meta["text"] = TEXT
    job.save_meta()
    assert Job.fetch(one.id, theirs).meta == {"text": TEXT}
    assert job.cancel() == "canceled"
    job.delete()
    assert not Job.exists(one.id, theirs)
    queue.pause()
    assert queue.resume()
    assert queue.empty() == 1
    later = queue.enqueue_in(60, basic.noop)
    registry = ScheduledJobRegistry(connection=theirs)
    assert (registry.count, registry.get_job_ids()) == (1, [later.id])
    later.reschedule(120)
    assert registry.get_scheduled_time(later) == later.scheduled_at()
    assert [found.id for found in registry.get_jobs()] == [later.id]


def test_cron_and_events(theirs: redis.Redis, conn: redis.Redis) -> None:
    scheduler = Scheduler(theirs)
    scheduler.cron("0 3 * * *", "tasks.sms.sendSMS", id="nightly", kwargs={"text": TEXT})
    scheduler.every("1h", "tasks.sms.sendSMS", id="hourly")
    assert sorted(scheduler.ids()) == ["hourly", "nightly"]
    assert {info.id for info in scheduler.entries()} == {"hourly", "nightly"}
    scheduler.pause("hourly")
    assert scheduler.get("hourly").paused is not None
    scheduler.resume("hourly")
    assert scheduler.run("nightly").kwargs == {"text": TEXT}
    assert scheduler.history("nightly")
    scheduler.remove("hourly")
    with Connection(theirs):
        Log.log(TEXT)
    events = event_inspector_of(theirs)
    ours = event_inspector_of(conn)
    assert (events.stream(), events.tail(10), events.last_entry()) == (ours.stream(), ours.tail(10), ours.last_entry())
    assert TEXT in str(events.tail(10))
    assert list(islice(events.follow("0-0", 0.05), 2)) == list(islice(ours.follow("0-0", 0.05), 2))
    assert (events.sinks(), events.relays(), events.parked_count("s"), events.parked("s", 5)) == ([], [], 0, [])
    assert not event_broker_of(theirs).forget("s")
    assert schema_broker_of(theirs).stored() == schema_broker_of(conn).stored()


def test_a_worker_of_it(theirs: redis.Redis, conn: redis.Redis) -> None:
    """Nobody runs one over such a client, but its calls are those of every writer."""
    Queue("sms", theirs).enqueue(basic.add, 1, b=TEXT, job_id="a", retry=Retry(2))
    hand = Hand(broker_of(theirs), "sms")
    (claimed,) = hand.claim()
    assert claimed.fields[b"data"].endswith(conn.hget("rq:job:a", "data")[1:])
    assert hand.tell(claimed, fields={"result": '"done"'}) == "ok"
    assert Job.fetch("a", theirs).result == "done"
    assert inspector_of(theirs).queue_names() == ["sms"]
    assert broker_of(theirs).reap(60, 0)[0] == 0


def test_as_the_current_connection(theirs: redis.Redis, conn: redis.Redis) -> None:
    push_connection(theirs)
    try:
        assert Job.fetch(Queue("sms").enqueue(basic.noop).id).is_queued
    finally:
        pop_connection()


def test_its_own_commands_answer_as_before(theirs: redis.Redis) -> None:
    Queue("sms", theirs).enqueue(basic.noop)
    theirs.set("theirs", "text")
    decodes = theirs.get_encoder().decode_responses
    assert theirs.get("theirs") == ("text" if decodes else b"text")
    pipe = theirs.pipeline()
    pipe.get("theirs")
    assert pipe.execute() == ["text" if decodes else b"text"]


def test_a_tracer_sees_the_commands_of_such_a_client(redis_url: str) -> None:
    seen: list[Any] = []

    class Traced(redis.Redis):
        def execute_command(self, *args: Any, **options: Any) -> Any:
            seen.append(args[0])
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call, unused-ignore]

    with Traced.from_url(redis_url, decode_responses=True) as client:
        Queue("sms", client).enqueue(basic.noop)
        assert Queue("sms", client).count == 1
    assert "EVALSHA" in seen


@pytest.mark.long
def test_errors_are_fusions(redis_url: str) -> None:
    client = redis.Redis(port=1, decode_responses=True)
    with pytest.raises(StoreUnavailable, match="redis://localhost:1/0"):
        Queue("sms", client).enqueue(basic.noop)
    with pytest.raises(StoreUnavailable):
        assert Queue("sms", client).count


@pytest.mark.parametrize("kind", OPTIONS)
def test_for_asyncio(redis_url: str, conn: redis.Redis, kind: str) -> None:
    given = {name: value for name, value in OPTIONS[kind].items() if name != "retry"}

    async def main() -> None:
        client = aredis.Redis.from_url(redis_url, **given)
        queue = AsyncQueue("sms", client)
        await queue.enqueue(basic.add, 1, b=TEXT, job_id="a", description=TEXT)
        with pytest.raises(DuplicateJob):
            await queue.enqueue(basic.noop, job_id="a")
        await queue.enqueue_many([queue.prepare_data(basic.noop) for _ in range(3)])
        await queue.enqueue_in(60, basic.noop)
        await client.aclose()

    asyncio.run(main())
    assert Job.fetch("a", conn).description == TEXT
    assert Queue("sms", conn).count == 4


def test_an_enqueue_needs_no_gevent(redis_url: str) -> None:
    code = (
        "import sys; sys.modules['gevent'] = None\n"
        "from fusion import Queue; ids = {Queue('sms').enqueue('tests.jobs.basic.noop', n).id for n in range(5)}; print(len(ids))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert (done.stdout, done.stderr) == ("5\n", "")
