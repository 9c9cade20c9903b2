"""RQ's forking worker, a process of its own for each that runs at a time."""

from __future__ import annotations

from collections.abc import Sequence

import redis
import rq

from benchmarks.peers.base import Peer


class RQProducer:
    def __init__(self, url: str, module: str = "benchmarks.tasks") -> None:
        self._conn = redis.Redis.from_url(url)
        self._queue, self._module = rq.Queue("rqbench", connection=self._conn), module

    def one(self, task: str, *args: object) -> None:
        self._queue.enqueue(f"{self._module}.{task}", *args)

    def many(self, task: str, calls: Sequence[tuple[object, ...]]) -> bool:
        path = f"{self._module}.{task}"
        for at in range(0, len(calls), 1000):
            self._queue.enqueue_many([rq.Queue.prepare_data(path, args) for args in calls[at : at + 1000]])
        return True

    def close(self) -> None:
        self._conn.close()


def _heavy(url: str) -> RQProducer:
    return RQProducer(url, "benchmarks.heavy_tasks")


def _commands(processes: int, url: str) -> list[list[str]]:
    return [["-m", "rq.cli", "worker", "rqbench", "--quiet", "--url", url] for _ in range(processes)]


def _simple(processes: int, url: str) -> list[list[str]]:
    return [[*command, "--worker-class", "rq.SimpleWorker"] for command in _commands(processes, url)]


FORKING = Peer("RQ", "rq", True, False, RQProducer, _commands)
HEAVY = Peer("RQ, heavy module", "rq", True, False, _heavy, _commands)
SIMPLE = Peer("RQ, SimpleWorker", "rq", False, False, RQProducer, _simple)
