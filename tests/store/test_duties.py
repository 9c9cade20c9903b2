"""What a script that works for the whole fleet publishes: its end, and the instants that it found; nothing while work is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from fusion.store.write.broker import Broker
from tests.kit.hands import new, put

#: Longest seconds until a message has come.
WITHIN = 0.3


class Listener:
    """Receives what is published on the channel of one database."""

    def __init__(self, conn: redis.Redis, channel: str) -> None:
        self._pubsub: Any = conn.pubsub(ignore_subscribe_messages=True)
        self._pubsub.subscribe(channel)
        self._pubsub.get_message(timeout=WITHIN)

    def told(self) -> list[str]:
        found = []
        while message := self._pubsub.get_message(timeout=WITHIN):
            found.append(message["data"].decode())
        return found

    def close(self) -> None:
        self._pubsub.close()


@pytest.fixture
def listener(broker: Broker, conn: redis.Redis) -> Iterator[Listener]:
    made = Listener(conn, broker.duties)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda broker: broker.promote(), "promote -1 -1 -1"),
        (lambda broker: broker.expire(), "expire -1"),
        (lambda broker: broker.tend_batches(), "tend -1"),
        (lambda broker: (broker.reap(30, 5), broker.prune(30)), "recover 0 0"),
        (lambda broker: broker.sample(10), "sample"),
        (lambda broker: broker.clean(interval=15), "clean"),
    ],
)
def test_a_duty_that_is_done_is_told(broker: Broker, listener: Listener, call: Callable[[Broker], object], told: str) -> None:
    call(broker)
    (said,) = listener.told()
    assert said == told or (said.startswith("recover ") and 0 <= int(said.split()[1]) < 1000)


def test_a_pass_that_is_not_due_yet_is_not_told(broker: Broker, listener: Listener) -> None:
    broker.sample(10)
    broker.clean(interval=15)
    assert listener.told() == ["sample", "clean"]
    broker.sample(10)
    broker.clean(interval=15)
    assert listener.told() == []


def test_instants_are_told(broker: Broker, listener: Listener) -> None:
    put(broker, "q", "old", ttl=5)
    broker.enqueue("q", [new("later", delay=7)])
    broker.open_batch("b", "n", 9, 60, {})
    broker.promote()
    (said,) = listener.told()
    due, expires, tends = map(int, said.split()[1:])
    assert 6000 < due <= 7000
    assert 4000 < expires <= 5000
    assert 8000 < tends <= 9000


def test_while_work_is_left_nothing_is_told_so_that_all_others_come_too(
    broker: Broker, listener: Listener, conn: redis.Redis
) -> None:
    put(broker, "q", *(f"old{n}" for n in range(3)), ttl=5)
    broker.enqueue("q", [new(f"due{n}", delay=5) for n in range(3)])
    for n in range(3):
        conn.zadd("rq:expiring", {f"old{n}": 1})
        conn.hset(f"rq:job:old{n}", "expires_at", 1)
        conn.zadd("rq:scheduler:scheduled_jobs", {f"due{n}": 1 + n})
    broker.promote(1)
    broker.expire(1)
    assert listener.told() == []
    broker.promote()
    broker.expire()
    assert listener.told() == ["promote -1 0 -1", "expire -1"]


def test_work_for_one_worker_is_no_duty(broker: Broker, listener: Listener) -> None:
    broker.reap(30, 5)
    broker.prune(30, "gone")
    assert listener.told() == []


def test_another_database_is_another_fleet(broker: Broker, conn: redis.Redis) -> None:
    """All databases of a server share their channels, and a fleet that takes another's duties for its own does none."""
    ours = int(conn.connection_pool.connection_kwargs.get("db") or 0)
    assert broker.duties == f"rq:pubsub:_duties:{ours}"
    options = {**conn.connection_pool.connection_kwargs, "db": ours + 1}
    pool = redis.ConnectionPool(connection_class=conn.connection_pool.connection_class, **options)
    assert Broker(redis.Redis(connection_pool=pool)).duties == f"rq:pubsub:_duties:{ours + 1}"


def test_whoever_may_not_publish_does_the_work_all_the_same(broker: Broker, conn: redis.Redis, listener: Listener) -> None:
    put(broker, "q", "a")
    conn.execute_command("ACL", "SETUSER", "mute", "on", ">x", "~*", "+@all", "resetchannels")
    try:
        options = {**conn.connection_pool.connection_kwargs, "username": "mute", "password": "x"}
        mute = Broker(
            redis.Redis(connection_pool=redis.ConnectionPool(connection_class=conn.connection_pool.connection_class, **options))
        )
        assert mute.promote() == (0, None, None, None)
        assert mute.sample(10) is False
        assert listener.told() == []
    finally:
        conn.execute_command("ACL", "DELUSER", "mute")
