"""More calls at once than a pool has connections: each waits for one, the first to come first, and an error says so if none comes free."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from fusion import AsyncQueue, Queue, StoreUnavailable
from fusion.store.client.async_connections import twin
from fusion.store.client.connections import connect
from tests.kit.waiting import eventually, unhurried

ROOT = Path(__file__).resolve().parents[2]
GREENLETS = """
from gevent import monkey
monkey.patch_all()
import gevent, os
from fusion import Queue
from fusion.store.client.connections import connect
queue = Queue("g", connect(os.environ["FUSION_REDIS_URL"]))
calls = [gevent.spawn(queue.enqueue, "tests.jobs.basic.noop", n) for n in range(400)]
gevent.joinall(calls)
print(sum(call.successful() for call in calls), {type(call.exception).__name__ for call in calls})
"""


def _with(url: str, options: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{options}"


def test_greenlets_wait_for_the_connections_of_others(redis_url: str, conn: redis.Redis) -> None:
    done = subprocess.run(
        [sys.executable, "-c", GREENLETS],
        cwd=ROOT,
        env={**os.environ, "FUSION_REDIS_URL": redis_url},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("400 {'NoneType'}\n", "")
    assert Queue("g", conn).count == 400


@pytest.mark.parametrize("connections", [1, 3])
def test_threads_wait_for_the_connections_of_others(redis_url: str, conn: redis.Redis, connections: int) -> None:
    with connect(_with(redis_url, f"max_connections={connections}")) as client, ThreadPoolExecutor(40) as threads:
        queue = Queue("t", client)
        jobs = list(threads.map(lambda n: queue.enqueue("tests.jobs.basic.noop", n).id, range(400)))
    assert len(set(jobs)) == Queue("t", conn).count == 400


def test_tasks_of_a_loop_wait_for_the_connections_of_others(redis_url: str, conn: redis.Redis) -> None:
    async def enqueue() -> int:
        with connect(_with(redis_url, "max_connections=3")) as client:
            theirs = twin(client)
            queue = AsyncQueue("a", connection=theirs)
            jobs = await asyncio.gather(*(queue.enqueue("tests.jobs.basic.noop", n) for n in range(300)))
            await theirs.aclose()
        return len({job.id for job in jobs})

    assert asyncio.run(enqueue()) == Queue("a", conn).count == 300


def test_an_error_names_the_pool_and_that_nothing_was_written(redis_url: str, conn: redis.Redis) -> None:
    with connect(_with(redis_url, "max_connections=2&socket_timeout=0.2")) as client:
        held = [client.connection_pool.get_connection() for _ in range(2)]
        for _ in range(2):
            with pytest.raises(
                StoreUnavailable, match=r"each of the 2 connections .* within 0\.2 s; enqueue from fewer"
            ) as caught:
                Queue("t", client).enqueue("tests.jobs.basic.noop")
            assert caught.value.nothing_written
            assert "running" not in str(caught.value)
        client.connection_pool.release(held.pop())
        Queue("t", client).enqueue("tests.jobs.basic.noop")
        client.connection_pool.release(held.pop())
    assert Queue("t", conn).count == 1


def test_an_error_on_a_loop_names_the_pool_and_that_nothing_was_written(redis_url: str, conn: redis.Redis) -> None:
    async def enqueue() -> None:
        with connect(_with(redis_url, "max_connections=1&socket_timeout=0.2")) as client:
            theirs = twin(client)
            queue, pool = AsyncQueue("a", connection=theirs), theirs.connection_pool
            held = await pool.get_connection()
            with pytest.raises(StoreUnavailable, match="each of the 1 connections") as caught:
                await queue.enqueue("tests.jobs.basic.noop")
            assert caught.value.nothing_written
            waiting = asyncio.create_task(queue.enqueue("tests.jobs.basic.noop"))
            given_up = asyncio.create_task(queue.enqueue("tests.jobs.basic.noop"))
            while len(pool._waiters) < 2:
                await asyncio.sleep(0)
            given_up.cancel()
            await pool.release(held)
            await waiting
            with pytest.raises(asyncio.CancelledError):
                await given_up
            await theirs.aclose()

    asyncio.run(enqueue())
    assert Queue("a", conn).count == 1


def test_the_first_to_wait_is_the_first_to_get_one_and_none_that_comes_later_is_before_it(redis_url: str) -> None:
    with connect(_with(redis_url, "max_connections=1")) as client:
        pool = client.connection_pool
        held, got = pool.get_connection(), []

        def take(number: int) -> None:
            connection = pool.get_connection()
            got.append(number)
            pool.release(connection)

        threads = [threading.Thread(target=take, args=(number,)) for number in range(5)]
        for number, thread in enumerate(threads):
            thread.start()
            eventually(lambda number=number: len(pool._waiters) == number + 1)
        pool.release(held)
        take(5)
        for thread in threads:
            thread.join(unhurried(10))
    assert got == [0, 1, 2, 3, 4, 5]


def test_a_forked_process_waits_for_nobody_of_its_parent(redis_url: str) -> None:
    with connect(_with(redis_url, "max_connections=1")) as client:
        pool = client.connection_pool
        held = pool.get_connection()
        waiting = threading.Thread(target=lambda: pool.release(pool.get_connection()))
        waiting.start()
        eventually(lambda: len(pool._waiters) == 1)
        if (pid := os.fork()) == 0:
            try:
                os._exit(0 if client.ping() and not pool._waiters else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        pool.release(held)
        waiting.join()
