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
from fusion.exceptions import InvalidJobOperation, NoSuchJobError, StoreUnavailable
from fusion.store.write.broker import Broker
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
