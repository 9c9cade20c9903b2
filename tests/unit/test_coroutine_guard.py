"""What ends a coroutine that runs beside others, and when it does not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import copy_context
from typing import Any

import pytest

from fusion.exceptions import JobStopped, JobTimeoutException
from fusion.forkserver.asyncio_horse import CoroutineGuard
from fusion.forkserver.loop_watch import LoopWatch
from fusion.kernel.timeouts import unbroken


def unblocked(loop: asyncio.AbstractEventLoop) -> LoopWatch:
    """The watch of a loop that nothing blocks."""
    watch = LoopWatch(loop, lambda *standstill: None, lambda seconds: None)
    watch.mind()
    loop.call_later(30, watch.rest)
    return watch


def guarded(coroutine: Coroutine[Any, Any, Any], limit: float | None = None, stop_after: float | None = None) -> Any:
    async def run() -> Any:
        loop = asyncio.get_running_loop()
        guard = CoroutineGuard(loop, unblocked(loop))
        if stop_after is not None:
            loop.call_later(stop_after, guard.stop)
        guard.context = copy_context()
        return await loop.create_task(its_own(guard), context=guard.context)

    async def its_own(guard: CoroutineGuard) -> Any:
        try:
            value = await guard.run_task(limit, coroutine)
        finally:
            task = asyncio.current_task()
            assert task is not None
            assert not task.cancelling(), "whoever ran it may go on"
            await asyncio.sleep(0)
        return value, guard

    return asyncio.run(run())


async def waits(seconds: float = 60.0) -> str:
    await asyncio.sleep(seconds)
    return "value"


def test_one_that_ends_in_time_is_left_alone() -> None:
    assert guarded(waits(0.01), 5.0)[0] == "value"


def test_the_limit_is_told_as_everywhere() -> None:
    with pytest.raises(JobTimeoutException, match=r"Task exceeded maximum timeout value \(0.05 seconds\)"):
        guarded(waits(), 0.05)


def test_a_stop_is_told_too() -> None:
    with pytest.raises(JobStopped):
        guarded(waits(), None, 0.05)


def test_a_coroutine_that_swallows_its_cancellation_is_canceled_again() -> None:
    async def swallows_once() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(60)

    begun = time.monotonic()
    with pytest.raises(JobTimeoutException):
        guarded(swallows_once(), 0.05)
    assert 0.9 < time.monotonic() - begun < 3


def test_an_error_of_its_own_stays_its_own() -> None:
    async def cancels_itself() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        guarded(cancels_itself(), 5.0)


def test_its_own_time_limits_work() -> None:
    async def limited() -> str:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.02):
                await asyncio.sleep(60)
        await asyncio.sleep(0.02)
        return "went on"

    assert guarded(limited(), 5.0)[0] == "went on"


def test_a_coroutine_is_not_interrupted_during_an_exchange_with_redis() -> None:
    """The exchange ends first."""
    told = []

    async def exchanges() -> None:
        with unbroken():
            await asyncio.sleep(0.2)
            told.append("answered")
        told.append("went on")
        await asyncio.sleep(60)

    with pytest.raises(JobTimeoutException):
        guarded(exchanges(), 0.05)
    assert told == ["answered"]


def test_a_stop_that_came_first_leaves_nothing_to_begin() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        guard = CoroutineGuard(loop, unblocked(loop))
        guard.stop()
        with pytest.raises(JobStopped):
            await guard.run_task(None, waits())
        with pytest.raises(JobStopped):
            guard.check()

    asyncio.run(run())
