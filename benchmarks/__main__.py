"""`python -m benchmarks`: one process per job, Fusion beside RQ's forking worker and a bare fork loop, interleaved on one Redis."""

from __future__ import annotations

import argparse
import platform
import statistics
import tempfile
import time
from collections.abc import Callable

import redis
from rq.version import VERSION as RQ_VERSION

from benchmarks import contenders
from fusion import Queue, __version__
from fusion.store.connections import check_server, connect
from fusion.store.embedded import EmbeddedRedis


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=3000, help="no-ops that Fusion and the bare loop run each round")
    parser.add_argument("--rq-jobs", type=int, default=300, help="no-ops that RQ runs each round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fusb", dir="/tmp") as home:
        server = EmbeddedRedis(home, persistent=False)
        server.start()
        try:
            run(server.url, options.rounds, options.jobs, options.rq_jobs)
        finally:
            server.stop()


def run(url: str, rounds: int, jobs: int, rq_jobs: int) -> None:
    conn = connect(url)
    info = check_server(conn)
    print(
        f"Fusion {__version__}, rq {RQ_VERSION}, Python {platform.python_version()}, {info.server_name} {'.'.join(map(str, info.version))}, "
        f"unix socket, {rounds} rounds"
    )
    light, heavy = "benchmarks.tasks", "benchmarks.heavy_tasks"
    runs: dict[str, Callable[[], contenders.Drain]] = {
        "bare fork loop": lambda: contenders.bare(jobs),
        "Fusion": lambda: contenders.fusion(url, jobs, light),
        "RQ": lambda: contenders.rq(url, rq_jobs, light),
        "Fusion, tasks import requests": lambda: contenders.fusion(url, jobs, heavy),
        "RQ, tasks import requests": lambda: contenders.rq(url, rq_jobs, heavy),
    }
    drains: dict[str, list[contenders.Drain]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run_one in runs.items():
            conn.flushall()
            drains[name].append(run_one())
    medians = {name: statistics.median(drain.jobs_per_second for drain in found) for name, found in drains.items()}
    print(f"\none process per job, no-op{'jobs/s':>16}{'x RQ':>9}{'x bare':>9}   resident MiB")
    for name, median in medians.items():
        peer = medians["RQ, tasks import requests" if "requests" in name else "RQ"]
        held = ", ".join(f"{process} {mib:.1f}" for process, mib in drains[name][-1].memory.items() if mib)
        print(f"  {name:<30}{median:>10.0f}{median / peer:>9.1f}{median / medians['bare fork loop']:>9.2f}   {held}")
    producers(conn, jobs)


def producers(conn: redis.Redis, jobs: int) -> None:
    conn.flushall()
    queue = Queue("default", conn)
    started = time.perf_counter()
    queue.enqueue_many([Queue.prepare_data("benchmarks.tasks.noop") for _ in range(jobs)])
    many = jobs / (time.perf_counter() - started)
    started = time.perf_counter()
    for _ in range(jobs):
        queue.enqueue("benchmarks.tasks.noop")
    one = jobs / (time.perf_counter() - started)
    print(f"\nenqueue {one:.0f} jobs/s, enqueue_many {many:.0f} jobs/s")


if __name__ == "__main__":
    main()
