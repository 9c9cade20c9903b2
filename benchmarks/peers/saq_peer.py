"""SAQ: asyncio, one process for each that may run at a time, ten coroutines in each as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from saq import Queue

from benchmarks import tasks
from benchmarks.peers.base import URL, Conditions, Peer, function, unless


async def noop(ctx: object, *, args: list[str]) -> None:
    tasks.noop(*args)


async def stamp(ctx: object, *, args: list[int]) -> None:
    tasks.stamp(*args)


settings = {"queue": Queue.from_url(URL, name="bench"), "functions": [noop, stamp]}


class SAQProducer:
    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._queue = Queue.from_url(url, name="bench")

    def one(self, task: str, *args: object) -> None:
        self._runner.run(self._queue.enqueue(function(task), args=list(args), ttl=60))

    def many(self, task: str, calls: Sequence[tuple[object, ...]]) -> bool:
        return False

    def close(self) -> None:
        self._runner.run(self._queue.disconnect())
        self._runner.close()


def _commands(asked: Conditions, url: str) -> list[list[str]]:
    flags = ["--workers", str(asked.processes), *unless(asked.quiet, "--quiet")]
    return [["-m", "saq", "benchmarks.peers.saq_peer.settings", *flags]]


ASYNCIO = Peer("SAQ", "saq", False, True, SAQProducer, _commands, feeds=False)
