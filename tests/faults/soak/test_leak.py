"""A worker that has run thousands of jobs is the worker it was after the first few, and Redis holds no more than before."""

from __future__ import annotations

import os
from typing import NamedTuple

import psutil
import pytest
import redis

from fusion import Queue
from tests.kit.waiting import eventually
from tests.kit.workers import WorkerProcess, Workers

SOAK = bool(os.environ.get("FUSION_TEST_SOAK"))
FIRST, LAST = (2_000, 20_000) if SOAK else (400, 1_000)
#: Jobs after which the stream of events is at its cap.
SETTLED = 4_000
#: Descriptors that come and go: a doorbell's connection, a spare process's socket.
_IN_PASSING = 2
NOOP = "tests.jobs.basic.noop"


class Held(NamedTuple):
    """What one process holds."""

    descriptors: int
    threads: int
    rss: int


class Line:
    """Jobs that do nothing, for one worker, and what the worker holds when it has run them."""

    def __init__(self, conn: redis.Redis, worker: WorkerProcess) -> None:
        self._conn, self._queue, self._worker = conn, Queue("leak", conn), worker
        self.done = 0

    def run_to(self, jobs: int) -> None:
        while self.done < jobs:
            some = min(500, jobs - self.done)
            self._queue.enqueue_many([Queue.prepare_data(NOOP, result_ttl=0) for _ in range(some)])
            self.done += some
            eventually(lambda: self._counted() == self.done, 120, why=f"{self.done} jobs are done")

    def _counted(self) -> int:
        (key,) = self._conn.smembers("rq:workers")
        return int(self._conn.hget(key, "successful_job_count") or 0)

    def held(self) -> list[Held]:
        """By the worker and by its fork server."""
        processes = [psutil.Process(self._worker.pid), self._worker.fork_server()]
        return [Held(each.num_fds(), each.num_threads(), each.memory_info().rss) for each in processes]

    def memory_of_redis(self) -> int:
        """Once all that has its time to live behind it is gone."""
        eventually(lambda: self._conn.zcard("rq:finished:leak") == 0, 180, 0.5, "finished jobs are forgotten")
        self._conn.memory_purge()
        return int(self._conn.info("memory")["used_memory"])


@pytest.mark.timeout(1800 if SOAK else 120)
def test_neither_worker_nor_fork_server_nor_redis_grows_with_the_number_of_jobs(workers: Workers, conn: redis.Redis) -> None:
    worker = workers.start("leak", "--no-relay", "--disable-job-desc-logging", env={"FUSION_MAINTENANCE_INTERVAL": "1"})
    line = Line(conn, worker)
    line.run_to(FIRST)
    first, of_redis = line.held(), 0
    if SOAK:
        line.run_to(SETTLED)
        of_redis = line.memory_of_redis()
    line.run_to(LAST)

    eventually(lambda: line.held()[0].descriptors <= first[0].descriptors + _IN_PASSING, why="what comes and goes has gone")
    for name, was, now in zip(("worker", "fork server"), first, line.held(), strict=True):
        print(f"{name} after {FIRST} jobs: {was}; after {LAST}: {now}")
        assert now.threads == was.threads, name
        assert now.rss <= was.rss * 1.05, f"{name} has grown from {was.rss} to {now.rss} bytes"
        assert now.descriptors <= was.descriptors + _IN_PASSING, name
    if SOAK:
        now = line.memory_of_redis()
        print(f"Redis after {SETTLED} jobs: {of_redis} bytes; after {LAST}: {now}")
        assert now <= of_redis * 1.1
