"""Coroutine functions, and what they have called."""

from __future__ import annotations

import asyncio
from typing import Any

import fusion
from fusion.context import CurrentJob


def _current() -> CurrentJob:
    job = fusion.get_current_job()
    assert job is not None
    return job


async def speaks() -> str:
    """Says what a long job says of itself."""
    job = _current()
    job.meta["stage"] = "first"
    job.save_meta()
    job.progress(1, 2, "half")
    job.checkpoint(7, wait=True)
    await asyncio.sleep(0.05)
    job.meta["stage"] = "last"
    return job.id


async def child_knows() -> list[str]:
    """What it starts knows its job, too."""
    return [_current().id, await asyncio.create_task(_id()), *(await asyncio.gather(_id(), _id()))]


async def _id() -> str:
    await asyncio.sleep(0.01)
    return _current().id


async def fails_once() -> str:
    """Is tried again."""
    await asyncio.sleep(0)
    if not _current().attempts:
        raise ConnectionError("the first time")
    return "the second time"


async def enqueues(queue: str) -> str:
    """Uses Fusion's own client on the loop."""
    async with fusion.AsyncQueue(queue) as line:
        job = await line.enqueue("tests.jobs.coroutines.returns", 5)
    return job.id


async def returns(value: Any) -> Any:
    """Returns it."""
    return value


async def steps(count: int) -> int:
    """Gives way to its worker's end after a step."""
    for _ in _current().iterate(range(count)):
        await asyncio.sleep(0.05)
    return count


async def succeeded(job: CurrentJob, connection: None, value: Any) -> None:
    """A callback that is a coroutine."""
    await asyncio.sleep(0.01)
    job.meta["called back"] = value


def failed(job: CurrentJob, connection: None, kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """A callback that is none."""
    job.meta["called back"] = str(error)


async def raises() -> None:
    """Raises."""
    await asyncio.sleep(0)
    raise ValueError("no")


async def group_fails_once() -> str:
    """Is tried again for what its tasks raise."""
    if not _current().attempts:
        async with asyncio.TaskGroup() as group:
            for error in (ConnectionError("the first time"), TimeoutError("too")):
                group.create_task(_raise(error))
    return "the second time"


async def group_of_steps(count: int) -> None:
    """Its task gives way to its worker's end after a step."""
    async with asyncio.TaskGroup() as group:
        group.create_task(steps(count))


async def _raise(error: Exception) -> None:
    raise error


async def computes(n: int) -> int:
    """Awaits nothing."""
    return sum(range(n))
