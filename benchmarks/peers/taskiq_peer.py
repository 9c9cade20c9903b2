"""Taskiq with its Redis stream broker, which acknowledges; a hundred coroutines in each process unless told otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from taskiq_redis import RedisStreamBroker

from benchmarks import tasks
from benchmarks.peers.base import URL, Conditions, Peer, function, unless

broker = RedisStreamBroker(url=URL)
FUNCTIONS = {name: broker.task(task_name=name)(getattr(tasks, name)) for name in tasks.PLAIN + tasks.COROUTINES}


class TaskiqProducer:
    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._runner.run(broker.startup())

    def one(self, task: str, *args: object) -> None:
        self._runner.run(FUNCTIONS[function(task)].kiq(*args))

    def many(self, task: str, calls: Sequence[tuple[object, ...]]) -> bool:
        return False

    def close(self) -> None:
        self._runner.run(broker.shutdown())
        self._runner.close()


def _commands(asked: Conditions, url: str) -> list[list[str]]:
    flags = ["--workers", str(asked.processes), *unless(asked.quiet, "--log-level", "ERROR")]
    if asked.at_once > 1:
        flags += ["--max-async-tasks", str(asked.at_once)]
    return [["-m", "taskiq", "worker", "benchmarks.peers.taskiq_peer:broker", *flags]]


STREAM = Peer("Taskiq streams", "taskiq", False, True, TaskiqProducer, _commands, feeds=False)
