"""Which connection the API uses."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest
import redis

from fusion import Connection, Job, Queue, get_current_connection, pop_connection, push_connection
from fusion.exceptions import ConfigurationError, NoRedisError
from fusion.settings import use_settings
from fusion.store.client.connections import connect
from tests.jobs import basic


@pytest.fixture
def other(redis_url: str) -> redis.Redis:
    """Another database of the same server."""
    return connect(redis_url.replace("db=0", "db=5"))


def test_the_settings_name_the_default(conn: redis.Redis) -> None:
    job = Queue("sms").enqueue(basic.noop)
    assert get_current_connection() is get_current_connection()
    assert Job.fetch(job.id, conn).get_status() == "queued"


def test_push_and_pop(conn: redis.Redis, other: redis.Redis) -> None:
    push_connection(conn)
    push_connection(other)
    assert get_current_connection() is other
    inner = Queue("sms").enqueue(basic.noop)
    assert pop_connection() is other
    assert get_current_connection() is conn
    assert not Job.exists(inner.id)
    assert Job.exists(inner.id, other)
    assert inner.get_status() == "queued"  # a job stays with the connection it came from
    assert pop_connection() is conn
    with pytest.raises(ConfigurationError, match="pop_connection"):
        pop_connection()


def test_with_connection(conn: redis.Redis, other: redis.Redis) -> None:
    with Connection(other) as given:
        assert given is other
        with Connection(conn):
            outer = Queue("sms").enqueue(basic.noop)
        Queue("sms").enqueue(basic.noop)
        assert not Job.exists(outer.id)
    assert Job.exists(outer.id, conn)
    with pytest.raises(KeyError), Connection(other):
        raise KeyError
    with pytest.raises(ConfigurationError, match="pop_connection"):
        pop_connection()


def test_a_given_connection_wins_over_the_current_one(conn: redis.Redis, other: redis.Redis) -> None:
    with Connection(other):
        job = Queue("sms", connection=conn).enqueue(basic.noop)
        assert Job.fetch(job.id, connection=conn) == job
        assert not Job.exists(job.id)


def test_threads_and_tasks_have_stacks_of_their_own(conn: redis.Redis, other: redis.Redis) -> None:
    seen: list[object] = []
    push_connection(other)
    try:
        thread = threading.Thread(target=lambda: seen.append(get_current_connection()))
        thread.start()
        thread.join(10)
        assert seen[0] is not other

        async def inside(mine: redis.Redis) -> bool:
            with Connection(mine):
                await asyncio.sleep(0)
                return get_current_connection() is mine

        async def both() -> list[bool]:
            return await asyncio.gather(inside(conn), inside(other))

        assert asyncio.run(both()) == [True, True]
    finally:
        pop_connection()


def test_a_forked_child_has_a_connection_of_its_own(conn: redis.Redis) -> None:
    Queue("sms").enqueue(basic.noop)
    ours = get_current_connection()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            own = get_current_connection()
            Queue("sms").enqueue(basic.noop)
            os.write(write, b"own" if own is not ours else b"shared")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"own"
    os.close(read)
    os.close(write)
    assert Queue("sms").count == 2
    assert get_current_connection() is ours


def test_without_any_redis_the_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSION_REDIS_URL")
    monkeypatch.setattr("fusion.store.client.connections._LOCAL_PORT", 1)
    use_settings(None)
    with pytest.raises(NoRedisError, match="FUSION_REDIS_URL"):
        Queue("sms").enqueue(basic.noop)


def test_settings_changed_on_the_way_are_followed(conn: redis.Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Queue("sms").enqueue(basic.noop)
    monkeypatch.setenv("FUSION_REDIS_URL", redis_url.replace("db=0", "db=6"))
    use_settings(None)
    assert Queue("sms").count == 0
