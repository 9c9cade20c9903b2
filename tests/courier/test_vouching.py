"""The courier signs what Fusion's scripts accepted, and nothing that somebody else wrote into Redis."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import redis

from fusion import Queue
from fusion.courier.delivery import is_sealed
from tests.courier.harness import Endpoint, World, allowing
from tests.kit.receivers import Receiver
from tests.kit.waiting import eventually

Start = Callable[..., Receiver]
FORGED = "cb-1795341570123456-999"


def plant(conn: redis.Redis, delivery: str = FORGED, seal: str = "", **message: Any) -> None:
    """What a producer with too many rights may write."""
    said = {"status": "finished", "queue": "sms", "ended_at": "2026-01-31T09:30:00.000000Z", "attempts": 0, **message}
    args = f'["{seal}"]' if seal else "[]"
    data = f'["fusion.courier.deliver",null,{args},{json.dumps(said)}]'
    fields = {"status": "queued", "origin": "_callbacks", "original_queue": "_callbacks", "seq": 999, "priority": 1, "data": data}
    conn.hset(f"rq:job:{delivery}", mapping=fields)
    conn.zadd("rq:queue:_callbacks", {delivery: 1.4})


@pytest.mark.parametrize("job", ["", "lives"])
def test_a_forged_delivery_is_neither_signed_nor_sent(world: World, receiver: Start, conn: redis.Redis, job: str) -> None:
    """Of a job that never was, and of one that has not ended, with a url of its own."""
    endpoint = Endpoint()
    server = receiver(endpoint)
    url = f"http://127.0.0.1:{server.port}/hook"
    if job == "lives":
        Queue("other", conn).enqueue("tests.jobs.basic.noop", job_id="victim", callback_url=url)
    world.end(url)  # a real one beside it
    plant(conn, url=url, job_id="victim")
    world.courier(allowing(server))
    eventually(lambda: conn.hget(f"rq:job:{FORGED}", "status") == b"failed", 20)
    eventually(lambda: len(endpoint.posts) == 1, 20)
    assert FORGED not in endpoint.ids
    assert b"its origin is not known" in (conn.hget(f"rq:job:{FORGED}", "reason") or b"")


def test_a_text_of_its_own_needs_a_seal_whatever_job_agrees(world: World, receiver: Start, conn: redis.Redis) -> None:
    """An alert of doctor's is of no job. Else who may enqueue could have any text signed, beside a job with that URL."""
    endpoint = Endpoint()
    server = receiver(endpoint)
    url = f"http://127.0.0.1:{server.port}/hook"
    (job,) = world.end(url)
    ended = {"url": url, "job_id": job, "ended_at": (conn.hget(f"rq:job:{job}", "ended_at") or b"").decode()}
    assert world.broker.agree([{**ended, "status": "finished"}]) == [True]
    plant(conn, **ended, body='{"type":"alert.firing"}')
    world.courier(allowing(server))
    eventually(lambda: conn.hget(f"rq:job:{FORGED}", "status") == b"failed", 20)
    eventually(lambda: len(endpoint.posts) == 1, 20)
    assert FORGED not in endpoint.ids


@pytest.mark.parametrize("seal", ["0" * 40, "f" * 40])
def test_a_seal_that_was_made_up_is_none(world: World, receiver: Start, conn: redis.Redis, seal: str) -> None:
    endpoint = Endpoint()
    server = receiver(endpoint)
    plant(conn, seal=seal, url=f"http://127.0.0.1:{server.port}/hook", job_id="victim")
    world.courier(allowing(server))
    eventually(lambda: conn.hget(f"rq:job:{FORGED}", "status") == b"failed", 20)
    assert endpoint.posts == []


def test_a_sealed_one_is_sent_though_the_job_is_gone_by_then(world: World, receiver: Start, conn: redis.Redis) -> None:
    endpoint = Endpoint()
    server = receiver(endpoint)
    world.end(f"http://127.0.0.1:{server.port}/hook")
    for key in conn.scan_iter("rq:job:*"):
        if b":cb-" not in key:
            conn.delete(key)
    world.courier(allowing(server))
    world.settled(finished=1)
    assert len(endpoint.posts) == 1


def test_a_delivery_of_an_older_version_is_checked_against_the_job(world: World, receiver: Start, conn: redis.Redis) -> None:
    endpoint = Endpoint()
    server = receiver(endpoint)
    world.end(f"http://127.0.0.1:{server.port}/hook")
    (key,) = conn.scan_iter("rq:job:cb-*")
    data: bytes = conn.hget(key, "data")
    assert is_sealed(conn.get("rq:callbacks:secret"), key.decode().removeprefix("rq:job:"), data)
    unsealed = b'["fusion.courier.deliver",null,[],' + data.partition(b"],")[2]
    conn.hset(key, "data", unsealed)
    world.courier(allowing(server))
    world.settled(finished=1)
    assert len(endpoint.posts) == 1


def test_a_seal_is_of_one_delivery_and_its_very_words(world: World, conn: redis.Redis) -> None:
    world.end("https://example.com/hook")
    (key,) = conn.scan_iter("rq:job:cb-*")
    delivery, secret, data = key.decode().removeprefix("rq:job:"), conn.get("rq:callbacks:secret"), conn.hget(key, "data")
    assert is_sealed(secret, delivery, data)
    assert not is_sealed(secret, delivery + "1", data)
    assert not is_sealed(secret, delivery, data.replace(b"finished", b"failed"))
    assert not is_sealed(b"x" * 64, delivery, data)
    assert not is_sealed(b"", delivery, data)
