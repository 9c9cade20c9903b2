"""Rates by the number of jobs that wait, the size of arguments, and the number of queues and of processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.measure import Bench
from benchmarks.peers.registry import peer
from benchmarks.server import Server
from fusion import Queue
from fusion.store.client.connections import connect

#: Jobs of each point's drain.
_DRAIN = {"fusion": 1500, "fusion-pool": 8000, "huey": 8000, "celery": 3000}
_BACKLOGS = (1_000, 10_000, 100_000, 1_000_000)
_SIZES = (100, 1_000, 10_000, 100_000)
_QUEUES = (1, 2, 5, 10, 20, 50)
_WORKERS = (1, 2, 3, 4)

Curve = dict[str, list[tuple[float, float]]]


def run(server: Server, scale: float) -> dict[str, Any]:
    """Title, axis and points (jobs/s) of each curve."""
    curves: dict[str, Any] = {}

    def add(key: str, title: str, axis: str, lines: Curve) -> None:
        curves[key] = {"title": title, "axis": axis, "lines": lines}
        print(f"curve: {title}", file=sys.stderr)

    jobs = {name: max(20, int(count * scale)) for name, count in _DRAIN.items()}
    modes = ("fusion", "fusion-pool")
    add("backlog", "rate by jobs waiting", "jobs waiting", _lines(modes, _BACKLOGS, lambda k, n: _behind(server, k, jobs[k], n)))
    add(
        "payload",
        "rate by size of the arguments, 2 processes",
        "bytes",
        _lines((*modes, "huey", "celery"), _SIZES, lambda k, n: _drain(server, k, max(20, jobs[k] // (1 + n // 20_000)), 2, n)),
    )
    add("queues", "rate by queues served", "queues", _lines(modes, _QUEUES, lambda k, n: _queues(server, k, jobs[k], n)))
    add(
        "workers",
        "rate by processes at a time",
        "processes",
        _lines((*modes, "huey", "celery"), _WORKERS, lambda k, n: _drain(server, k, jobs[k], n, 0)),
    )
    return curves


def _lines(keys: Iterable[str], points: tuple[int, ...], take: Callable[[str, int], float]) -> Curve:
    return {peer(key).name: [(point, take(key, point)) for point in points] for key in keys}


def _drain(server: Server, key: str, jobs: int, processes: int, size: int) -> float:
    bench = Bench(server, key, peer(key))
    try:
        bench.fill(jobs, size)
        return bench.drain(jobs, processes).jobs_per_second
    finally:
        bench.close()


def _behind(server: Server, key: str, jobs: int, backlog: int) -> float:
    """The rate of the first `jobs` of so many that wait."""
    bench = Bench(server, key, peer(key))
    try:
        bench.fill(max(backlog, jobs))
        return bench.drain(jobs, 2).jobs_per_second
    finally:
        bench.close()
        server.conn.flushall()


def _queues(server: Server, key: str, jobs: int, queues: int) -> float:
    bench = Bench(server, key, peer(key))
    names = [f"q{n}" for n in range(queues)]
    conn = connect(server.url)
    try:
        for name in names:
            Queue(name, conn).enqueue_many([Queue.prepare_data("benchmarks.tasks.noop") for _ in range(-(-jobs // queues))])
        command = [*peer(key).commands(2, server.url)[0], *names]
        return bench.drain(jobs, 2, [command]).jobs_per_second
    finally:
        conn.close()
        bench.close()


def claim_rates(server: Server, backlogs: tuple[int, ...] = (1_000, 1_000_000), rounds: int = 3) -> dict[int, dict[str, float]]:
    """The cost of a long queue by itself: jobs claimed and finished in turns of 8, without a worker, by the number of jobs that wait.

    `rate`: jobs/s. `bytes`: of Redis' memory, a job. `count_ms`: milliseconds of `Queue.count`. `left`: jobs that still wait.
    """
    from fusion.store.layout.records import Commit
    from fusion.store.write.broker import Broker

    found: dict[int, dict[str, float]] = {}
    for backlog in backlogs:
        server.conn.flushall()
        conn = connect(server.url)
        broker, queue = Broker(conn), Queue("default", conn)
        queue.enqueue_many(Queue.prepare_data("benchmarks.tasks.noop") for _ in range(backlog))
        used = server.used()
        broker.register("bench", "b" * 16, 30, 420, {})
        best, token = 0.0, 0
        for _ in range(rounds):
            commits: list[Commit] = []
            started, done = time.perf_counter(), 0
            while done < min(backlog // rounds, 5000) // 8 * 8:
                token += 1
                turn = broker.turn("bench", "b" * 16, token, commits, ["default"], [0] * 8, 30, 420)
                commits = [Commit("finished", job.id, job.execution_id, 0.0, 0.0, 0.0, "", {}, None) for job in turn.jobs]
                done += len(turn.jobs)
            best = max(best, done / (time.perf_counter() - started))
        began = time.perf_counter()
        count = queue.count
        found[backlog] = {"rate": best, "bytes": used / backlog, "count_ms": (time.perf_counter() - began) * 1000, "left": count}
        conn.close()
    server.conn.flushall()
    return found
