"""Fusion: one process per job, and with warm horses."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.peers.base import Peer
from fusion import Queue
from fusion.store.client.connections import connect


class FusionProducer:
    def __init__(self, url: str, module: str = "benchmarks.tasks") -> None:
        self._conn = connect(url)
        self._queue, self._module = Queue("default", self._conn), module

    def one(self, task: str, *args: object) -> None:
        self._queue.enqueue(f"{self._module}.{task}", *args)

    def many(self, task: str, calls: Sequence[tuple[object, ...]]) -> bool:
        path = f"{self._module}.{task}"
        self._queue.enqueue_many([Queue.prepare_data(path, args) for args in calls])
        return True

    def close(self) -> None:
        self._conn.close()


def _heavy(url: str) -> FusionProducer:
    return FusionProducer(url, "benchmarks.heavy_tasks")


def _forking(processes: int, url: str) -> list[list[str]]:
    return [["run_worker.py", "worker", "--quiet", "--url", url, "--slots", str(processes)]]


def _pool(processes: int, url: str) -> list[list[str]]:
    return [["run_worker.py", "worker", "--quiet", "--url", url, "--horses", str(processes), "--max-jobs-per-horse", "0"]]


# the allow-list in the environment replaces the default: the bundled tasks weigh more than what is measured
_TASKS = (("FUSION_TASKS", "benchmarks.tasks"),)
_HEAVY = (("FUSION_TASKS", "benchmarks.heavy_tasks"),)

FORKING = Peer("Fusion", "fusion-queue", True, True, FusionProducer, _forking, _TASKS)
HEAVY = Peer("Fusion, heavy module", "fusion-queue", True, True, _heavy, _forking, _HEAVY)
POOL = Peer("Fusion, pool mode", "fusion-queue", False, True, FusionProducer, _pool, _TASKS)
