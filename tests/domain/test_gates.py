"""What bounds a queue, as programs set it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
import redis

from fusion import AsyncQueue, Queue, RateLimited
from fusion.context import CurrentJob
from fusion.exceptions import ConfigurationError, OptionError
from fusion.execution.completion import decide
from fusion.execution.outcome import failed
from fusion.settings import Settings


def test_both_kinds_of_queue_set_the_same(conn: redis.Redis) -> None:
    queue = Queue("q")
    queue.set_limit(20)
    queue.set_rate("100/60s", burst=5)
    queue.set_max_wait("5m")
    told = conn.hget("rq:gates", "q")
    assert told == b"limit=20 rate=100/60000/5 max_wait=300000"

    async def alike() -> None:
        async with AsyncQueue("a") as other:
            await other.set_limit(20)
            await other.set_rate("100/60s", 5)
            await other.set_max_wait(timedelta(minutes=5))
            assert conn.hget("rq:gates", "a") == told
            await other.set_limit(None)
            await other.set_rate(None)
            await other.set_max_wait(None)

    asyncio.run(alike())
    assert conn.hget("rq:gates", "a") is None


def test_both_kinds_of_queue_are_paused_alike(conn: redis.Redis) -> None:
    queue = Queue("q")

    async def pauses() -> list[bool]:
        async with AsyncQueue("q") as other:
            await other.pause("10m", reason="the provider is down", by="the on-call")
            with pytest.raises(OptionError):
                await other.pause(0)
            assert conn.exists("rq:paused:q")
            assert 599_000 < conn.pttl("rq:paused:q") <= 600_000
            found = queue.stats().info.pause
            assert found is not None
            assert (found.by, found.reason) == ("the on-call", "the provider is down")
            return [await other.resume(), await other.resume()]

    assert asyncio.run(pauses()) == [True, False]
    assert not queue.resume()
    queue.pause()
    assert conn.ttl("rq:paused:q") == -1


@pytest.mark.parametrize(
    ("method", "args", "name"),
    [
        ("set_limit", [0], "limit"), ("set_limit", [True], "limit"), ("set_limit", ["20"], "limit"), ("set_limit", [1_000_001], "limit"),
        ("set_rate", ["fast"], "rate"), ("set_rate", ["10/s", 0], "burst"), ("set_rate", [None, 5], "burst"),
        ("set_max_wait", ["soon"], "max_wait"), ("set_max_wait", [0], "max_wait"), ("set_max_wait", [-1], "max_wait"),
    ],
)  # fmt: skip
def test_an_invalid_limit_is_named_and_nothing_is_set(conn: redis.Redis, method: str, args: list[Any], name: str) -> None:
    with pytest.raises(OptionError) as caught:
        getattr(Queue("q"), method)(*args)
    assert caught.value.name == name
    assert conn.exists("rq:gates") == 0


def test_the_setting_reads_text_and_dicts() -> None:
    wanted = {"sms": {"limit": 20, "rate": "100/60000/5"}, "email": {"max_wait": 300_000}}
    assert (
        Settings.load(env={"FUSION_QUEUE_GATES": "sms limit=20 rate=100/60s burst=5; email max_wait=5m;"}).queue_gates == wanted
    )
    given = {"sms": {"limit": 20, "rate": "100/60s", "burst": 5}, "email": {"max_wait": 300}}
    assert Settings.load(env={}, queue_gates=given).queue_gates == wanted


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("sms", None), ("sms limit", "use QUEUE"), ("sms limit=0", "sms: limit"), ("sms speed=3", "sms: speed"), ("a*b limit=1", "not a valid"),
        ("failed limit=1", "not a valid"), ("_callbacks limit=1", "not a valid"), ("sms rate=1", "sms: rate"), ("sms burst=3", "goes with a rate"),
    ],
)  # fmt: skip
def test_a_setting_that_is_wrong(text: str, why: str | None) -> None:
    if why is None:
        assert Settings.load(env={"FUSION_QUEUE_GATES": text}).queue_gates == {"sms": {}}
        return
    with pytest.raises(ConfigurationError, match=why):
        Settings.load(env={"FUSION_QUEUE_GATES": text})


def test_rate_limited_raises_with_delay_and_reason() -> None:
    job = CurrentJob({b"id": b"a"})
    with pytest.raises(RateLimited, match="429") as caught:
        job.rate_limited("30s", "429")
    decision = decide({}, failed(caught.value, None))
    assert (decision.kind, decision.delay) == ("limited", 30.0)
    assert "retryCount" not in decision.fields
    for wrong in (0, -1, "soon", 90_000, float("nan")):
        with pytest.raises(ValueError, match=r"must be|not a duration"):
            job.rate_limited(wrong)
