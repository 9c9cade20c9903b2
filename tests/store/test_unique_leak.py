"""Keys without end, each of a job of its own: nothing is left of them."""

from __future__ import annotations

import os
from typing import Any

import pytest
import redis

from fusion.store.scripting.constants import FleetConstants
from fusion.store.write.broker import Broker
from fusion.store.write.queue_calls import met_in
from tests.kit.hands import Hand, outcome
from tests.kit.length import soaked
from tests.kit.waiting import eventually
from tests.store.unique_hands import lone

CHUNK = 500
#: A million take five minutes; one of each chunk that stayed would show in a few of them.
MANY = int(os.environ.get("FUSION_TEST_KEYS") or soaked(40_000, 100_000))
#: What a server's allocator keeps besides data, and the counters and doorbells of a queue that was used.
SLACK = 2_000_000


def _pass(conn: redis.Redis, hand: Hand, first: int, count: int, **more: Any) -> None:
    """This many jobs come in and end, each way in its turn, and are forgotten."""
    broker = hand.broker
    for at in range(first, first + count, CHUNK):
        names = [f"j{n}" for n in range(at, at + CHUNK)]
        jobs = [lone(name, f"key-{name}", result_ttl=0, failure_ttl=0, **more) for name in names]
        assert met_in(broker.enqueue("q", jobs, f"n{at}")) == {}
        for name in names[:5]:
            broker.cancel(name)
        held = hand.turn(slots=[0] * 20).jobs
        hand.turn(*(outcome(job, "failed" if n % 4 == 0 else "finished", reason="r") for n, job in enumerate(held)))
        broker.delete(names)


def _left(conn: redis.Redis) -> set[bytes]:
    return {key for key in conn.scan_iter(count=10_000) if b"unique" in key or key.startswith(b"rq:job:")}


def check(conn: redis.Redis, count: int, **more: Any) -> None:
    broker = Broker(conn, FleetConstants(events_cap=1000))
    hand = Hand(broker, "q")
    _pass(conn, hand, 0, 4 * CHUNK, **more)  # what a server needs once
    before = conn.info("memory")["used_memory_dataset"]
    _pass(conn, hand, 4 * CHUNK, count, **more)
    eventually(lambda: not _left(conn), 30, why="windows are over by themselves")
    assert conn.info("memory")["used_memory_dataset"] - before < SLACK
    assert conn.get("rq:uniques:audit") is None


def test_nothing_is_left_of_many_keys(conn: redis.Redis) -> None:
    check(conn, 2 * CHUNK)


@pytest.mark.long
@pytest.mark.parametrize(
    "more", [{"unique_until": "start"}, {"unique_window": 20}, {"unique_until": "accept", "unique_window": 20}]
)
def test_nothing_is_left_of_many_keys_of_any_kind(conn: redis.Redis, more: dict[str, Any]) -> None:
    check(conn, 20 * CHUNK, **more)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_nothing_is_left_of_keys_without_end(conn: redis.Redis) -> None:
    check(conn, MANY)
