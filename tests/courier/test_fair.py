"""Thousands of deliveries to a host that hangs stand before one to another."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from fusion.runtime.consumer import Consumer
from fusion.store.layout.records import Claimed
from tests.courier.harness import Endpoint, World, allowing
from tests.kit.receivers import Receiver
from tests.kit.waiting import eventually

Start = Callable[..., Receiver]


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When the courier asked Redis for more."""
    found: list[float] = []
    turn = Consumer.exchange

    def counted(consumer: Consumer, *start: Any) -> list[Claimed]:
        found.append(time.monotonic())
        return turn(consumer, *start)

    monkeypatch.setattr(Consumer, "exchange", counted)
    return found


@pytest.mark.long
def test_deliveries_do_not_wait_behind_2000_for_a_hanging_host(world: World, receiver: Start, turns: list[float]) -> None:
    slow, fast = Endpoint(), Endpoint()
    slow.gate.clear()
    stuck, server = receiver(slow), receiver(fast)
    world.end(f"http://127.0.0.1:{stuck.port}/hook", 2000)
    world.end(f"http://localhost:{server.port}/hook", 1)
    world.courier(allowing(stuck, server))
    eventually(lambda: fast.posts, 30)
    assert slow.most == 2
    assert sum(at < fast.posts[0].at for at in turns) < 80, "32 at a time these are 63; 16 at a time 126"
    slow.gate.set()


def test_a_postponed_delivery_returns_behind_waiting_ones(world: World, receiver: Start) -> None:
    slow = Endpoint()
    slow.gate.clear()
    stuck = receiver(slow)
    world.end(f"http://127.0.0.1:{stuck.port}/hook", 40)
    courier = world.courier(allowing(stuck))
    eventually(lambda: world.conn.zcard("rq:scheduler:scheduled_jobs") >= 30)
    slow.gate.set()
    assert courier.stop(10)
    put_off = [raw.decode() for raw in world.conn.zrange("rq:scheduler:scheduled_jobs", 0, -1)]
    assert put_off
    before = set(world.deliveries())
    world.end("http://localhost:1/hook", 1)
    (new,) = set(world.deliveries()) - before
    world.due()
    line = [raw.decode() for raw in world.conn.zrevrange("rq:queue:_callbacks", 0, -1)]
    assert line.index(new) < min(map(line.index, put_off))


@pytest.mark.long
def test_many_hosts_that_are_free_share_the_threads(world: World, receiver: Start) -> None:
    """More deliveries are claimed at a time than there are threads; each of them is made once, and no host gets more than two."""
    slow, fast = Endpoint(), Endpoint()
    slow.gate.clear()
    stuck, servers = receiver(slow), [receiver(fast, ip) for ip in ("127.0.0.2", "127.0.0.3")]
    world.end(f"http://127.0.0.1:{stuck.port}/hook", 500)
    jobs = [world.end(f"http://127.0.0.{n % 2 + 2}:{servers[n % 2].port}/hook", 1)[0] for n in range(60)]
    world.courier(allowing(stuck, *servers), slots=4)
    eventually(lambda: len(fast.posts) == 60, 30)
    assert set(fast.jobs.values()) == {1} and fast.jobs.keys() == set(jobs)
    slow.gate.set()
