"""SAQ: asyncio, one process for each that may run at a time, ten coroutines in each as it comes, or as many as are asked for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence

import redis.asyncio as redis
from saq import Queue
from saq.queue.redis import RedisQueue

from benchmarks import tasks
from benchmarks.peers.base import URL, Conditions, Peer, function, unless

#: Seconds that a job may take: those in hand are held while others are measured.
_LIMIT = 900
_AT_ONCE = int(os.environ.get("BENCH_AT_ONCE", "1"))


async def noop(ctx: object, *, args: list[str]) -> None:
    tasks.noop(*args)


async def stamp(ctx: object, *, args: list[int]) -> None:
    tasks.stamp(*args)


def _coroutine(name: str) -> tuple[str, Callable[..., Awaitable[None]]]:
    task = getattr(tasks, name)

    async def run(ctx: object, *, args: list[str]) -> None:
        await task(*args)

    return name, run


settings = {
    # Each coroutine waits for jobs on a connection of its own, and redis-py's pool has 100 unless told otherwise.
    "queue": RedisQueue(redis.from_url(URL, max_connections=2 * _AT_ONCE + 100), name="bench"),
    "functions": [noop, stamp, *(_coroutine(name) for name in tasks.COROUTINES)],
    "concurrency": _AT_ONCE if _AT_ONCE > 1 else 10,
}


class SAQProducer:
    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._queue = Queue.from_url(url, name="bench")

    def one(self, task: str, *args: object) -> None:
        self._runner.run(self._queue.enqueue(function(task), args=list(args), ttl=60, timeout=_LIMIT))

    def many(self, task: str, calls: Sequence[tuple[object, ...]]) -> bool:
        return False

    def close(self) -> None:
        self._runner.run(self._queue.disconnect())
        self._runner.close()


def _commands(asked: Conditions, url: str) -> list[list[str]]:
    flags = ["--workers", str(asked.processes), *unless(asked.quiet, "--quiet")]
    return [["-m", "saq", "benchmarks.peers.saq_peer.settings", *flags]]


ASYNCIO = Peer("SAQ", "saq", False, True, SAQProducer, _commands, feeds=False)
