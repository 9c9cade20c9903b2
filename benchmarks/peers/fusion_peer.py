"""Fusion: one process per job, with warm horses, and with threads or a loop in them. Horses are recycled as they come or never, as the
others' processes are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.peers.base import Conditions, Peer, unless
from fusion import Queue
from fusion.store.client.connections import connect


class FusionProducer:
    def __init__(self, url: str) -> None:
        self._conn = connect(url)
        self._queue = Queue("default", self._conn)

    def one(self, task: str, *args: object) -> None:
        self._queue.enqueue(task, *args)

    def many(self, task: str, calls: Sequence[tuple[object, ...]]) -> bool:
        self._queue.enqueue_many([Queue.prepare_data(task, args) for args in calls])
        return True

    def close(self) -> None:
        self._conn.close()


def _forking(asked: Conditions, url: str) -> list[list[str]]:
    return [_worker(asked, url, "--slots", str(asked.processes))]


def _pool(asked: Conditions, url: str) -> list[list[str]]:
    return [_worker(asked, url, "--horses", str(asked.processes))]


def _lasting(asked: Conditions, url: str) -> list[list[str]]:
    return [_worker(asked, url, "--horses", str(asked.processes), "--max-jobs-per-horse", "0")]


def _worker(asked: Conditions, url: str, *flags: str) -> list[str]:
    return ["run_worker.py", "worker", "--url", url, *flags, *unless(asked.quiet, "--quiet"), *asked.flags]


def _many(executor: str, flag: str) -> Callable[[Conditions, str], list[list[str]]]:
    def commands(asked: Conditions, url: str) -> list[list[str]]:
        own = ("--executor", executor, "--horses", str(asked.processes), flag, str(asked.at_once))
        return [_worker(asked, url, *own, "--max-jobs-per-horse", "0")]

    return commands


_KINDS = ("worker", "fork server", "horses")

FORKING = Peer("Fusion", "fusion-queue", True, True, FusionProducer, _forking, _KINDS)
POOL = Peer("Fusion, pool mode", "fusion-queue", False, True, FusionProducer, _lasting, _KINDS)
SHIPPED = Peer("Fusion, pool mode, horses recycled", "fusion-queue", False, True, FusionProducer, _pool, _KINDS)
THREAD = Peer("Fusion, threads", "fusion-queue", False, True, FusionProducer, _many("thread", "--threads"), _KINDS)
ASYNCIO = Peer("Fusion, asyncio", "fusion-queue", False, True, FusionProducer, _many("asyncio", "--concurrency"), _KINDS)
