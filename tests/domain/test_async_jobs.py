"""What AsyncQueue asks and changes of jobs: as Job does, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from redis import asyncio as aredis

from fusion import AsyncQueue, Queue
from fusion.exceptions import ConfigurationError, InvalidJobOperation, NoSuchJobError, StoreUnavailable
from fusion.store.write.broker import Broker
from fusion.trash import Trash
from tests.kit.hands import Hand


def asked(call: Callable[[AsyncQueue], Awaitable[Any]], queue: str = "sms", **given: Any) -> Any:
    async def inside() -> Any:
        async with AsyncQueue(queue, **given) as made:
            return await call(made)

    return asyncio.run(inside())


def test_a_job_is_fetched_with_its_result(conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue("tests.jobs.basic.add", 1, b=2, job_id="a", meta={"k": 1})
    waiting = asked(lambda queue: queue.fetch_job("a"))
    assert (waiting.args, waiting.kwargs, waiting.meta, waiting.get_status(refresh=False)) == ((1,), {"b": 2}, {"k": 1}, "queued")
    with pytest.raises(RuntimeError, match="fetch_job"):
        waiting.refresh()
    hand = Hand(Broker(conn), "sms")
    hand.tell(hand.take(), fields={"result": "3"})
    assert asked(lambda queue: queue.fetch_job("a")).result == 3
    assert asked(lambda queue: queue.fetch_job("a"), "email") is None, "it is of another queue"
    assert asked(lambda queue: queue.fetch_job("nobody")) is None


def test_status_of_a_job_and_of_an_id(conn: redis.Redis) -> None:
    job = Queue("sms", conn).enqueue("tests.jobs.basic.noop", job_id="a")
    assert asked(lambda queue: queue.get_status(job)) == "queued"
    assert asked(lambda queue: queue.get_status("a"), "email") == "queued", "whatever its queue"
    with pytest.raises(NoSuchJobError):
        asked(lambda queue: queue.get_status("nobody"))


def test_a_wait_ends_with_the_job_and_lets_the_loop_go_on(conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue("tests.jobs.basic.noop", job_id="a")

    async def waits(queue: AsyncQueue) -> Any:
        waiting = asyncio.create_task(queue.wait("a", 20))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        hand = Hand(Broker(conn), "sms")
        hand.tell(hand.take())
        return await waiting

    assert asked(waits) == "finished"


def test_a_wait_has_an_end(conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue("tests.jobs.basic.noop", job_id="a")
    with pytest.raises(TimeoutError, match=r"job a is queued after 0\.05 s"):
        asked(lambda queue: queue.wait("a", 0.05))
    with pytest.raises(NoSuchJobError):
        asked(lambda queue: queue.wait("nobody"))


@pytest.mark.parametrize(("wish", "done"), [("cancel", "canceled"), ("stop", "stopped")])
def test_cancel_and_stop_answer_as_jobs_do(conn: redis.Redis, wish: str, done: str) -> None:
    queue = Queue("sms", conn)
    jobs = [queue.enqueue("tests.jobs.basic.noop", job_id=name) for name in ("running", "done", "waiting")]
    hand = Hand(Broker(conn), "sms")
    hand.take()
    hand.tell(hand.take())
    assert asked(lambda queue: getattr(queue, wish)(jobs[0])) == "pending"
    assert asked(lambda queue: getattr(queue, wish)("waiting")) == done
    assert asked(lambda queue: getattr(queue, wish)("waiting")) == done, "again is no error"
    assert jobs[2].get_status() == done
    with pytest.raises(InvalidJobOperation, match="finished"):
        asked(lambda queue: getattr(queue, wish)("done"))
    with pytest.raises(NoSuchJobError):
        asked(lambda queue: getattr(queue, wish)("nobody"))


def test_no_redis_is_fusions_error(tmp_path: Path) -> None:
    calls = ("get_status", "fetch_job", "cancel", "stop", "wait")

    async def all_at_once(queue: AsyncQueue) -> list[object]:
        return await asyncio.gather(*(getattr(queue, call)("a") for call in calls), return_exceptions=True)

    nobody = aredis.Redis(unix_socket_path=str(tmp_path / "nobody"))
    assert [type(error) for error in asked(all_at_once, connection=nobody)] == [StoreUnavailable] * len(calls)


#: What both kinds of queue read, as Queue has it and as AsyncQueue has it.
READ: dict[str, tuple[Callable[[Queue], Any], Callable[[AsyncQueue], Awaitable[Any]]]] = {
    "count": (lambda queue: queue.count, lambda queue: queue.count()),
    "is_empty": (lambda queue: queue.is_empty(), lambda queue: queue.is_empty()),
    "ids": (lambda queue: queue.get_job_ids(), lambda queue: queue.get_job_ids()),
    "page": (lambda queue: queue.get_job_ids(1, 2), lambda queue: queue.get_job_ids(1, 2)),
    "none": (lambda queue: queue.get_job_ids(0, 0), lambda queue: queue.get_job_ids(0, 0)),
    "all": (lambda queue: queue.get_job_ids(2, -1), lambda queue: queue.get_job_ids(2, -1)),
    "jobs": (lambda queue: queue.get_jobs(1, 3), lambda queue: queue.get_jobs(1, 3)),
    "queues": (
        lambda queue: [one.name for one in Queue.all(queue.connection)],
        lambda queue: _names(queue),
    ),
}


async def _names(queue: AsyncQueue) -> list[str]:
    return [one.name for one in await AsyncQueue.all()]


@pytest.fixture
def some(conn: redis.Redis) -> None:
    for name in ("sms", "scheduler"):
        queue = Queue(name, conn)
        for n in range(5):
            queue.enqueue("tests.jobs.basic.noop", job_id=f"{name}{n}", priority=n % 3)
    conn.rpush("rq:queue:scheduler", "alien")  # the queue that other programs push to
    hand = Hand(Broker(conn), "sms")
    hand.tell(hand.take())


@pytest.mark.parametrize("queue", ["sms", "scheduler", "nothing"])
@pytest.mark.parametrize("what", READ)
@pytest.mark.usefixtures("some")
def test_it_reads_what_queue_reads(conn: redis.Redis, what: str, queue: str) -> None:
    of_queue, of_async_queue = READ[what]
    assert asked(of_async_queue, queue) == of_queue(Queue(queue, conn))


@pytest.mark.usefixtures("some")
def test_its_stats_are_those_of_queue(conn: redis.Redis) -> None:
    found, wanted = asked(lambda queue: queue.stats()), Queue("sms", conn).stats()
    assert (found.info, found.counters) == (wanted.info, wanted.counters)
    assert found.total_completed == 1 and 0 <= (wanted.last_updated - found.last_updated).total_seconds() < 60


@pytest.mark.usefixtures("some")
def test_jobs_of_a_page_show_what_was_stored_and_read_no_redis() -> None:
    (job,) = asked(lambda queue: queue.get_jobs(0, 1))
    assert (job.func_name, job.get_status(refresh=False)) == ("tests.jobs.basic.noop", "queued")
    with pytest.raises(RuntimeError, match="fetch_job"):
        job.refresh()


@pytest.mark.parametrize("purge", [False, True])
def test_it_empties_a_queue_and_the_jobs_can_be_restored_unless_purged(conn: redis.Redis, purge: bool) -> None:
    Queue("other", conn).enqueue("tests.jobs.basic.noop")
    asked(lambda queue: queue.enqueue_many([queue.prepare_data("tests.jobs.basic.noop") for _ in range(250)]))
    assert asked(lambda queue: queue.empty(purge=purge)) == 250
    assert (Queue("sms", conn).count, Queue("other", conn).count, Trash(conn).count) == (0, 1, 0 if purge else 250)
    assert asked(lambda queue: queue.empty()) == 0


def test_what_it_reads_raises_the_errors_of_queue(redis_url: str, conn: redis.Redis) -> None:
    conn.set("rq:queue:sms", "no zset")
    with pytest.raises(ConfigurationError, match="WRONGTYPE"):
        asked(lambda queue: queue.get_job_ids())
    nowhere = aredis.Redis(port=1)
    for call in (AsyncQueue.count, AsyncQueue.stats, AsyncQueue.get_jobs, AsyncQueue.empty):
        with pytest.raises(StoreUnavailable) as caught:
            asked(call, connection=nowhere)
        assert caught.value.job_ids == ()


def test_two_of_the_same_name_are_equal() -> None:
    assert AsyncQueue("a") == AsyncQueue("a") != AsyncQueue("b") and AsyncQueue("a") != Queue("a")
    assert len({AsyncQueue("a"), AsyncQueue("a"), AsyncQueue("b")}) == 2
