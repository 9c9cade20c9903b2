"""`python -m benchmarks`: one process per job, Fusion beside RQ's forking worker and a bare fork loop, interleaved on one Redis."""

from __future__ import annotations

import argparse
import platform
import statistics
import tempfile
import time

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
    rates: dict[str, list[float]] = {"bare fork loop": [], "Fusion worker": [], "RQ worker": []}
    memory: dict[str, dict[str, float]] = {}
    for _ in range(rounds):
        for name, contender in (
            ("bare fork loop", lambda: contenders.bare(jobs)),
            ("Fusion worker", lambda: contenders.fusion(url, jobs)),
            ("RQ worker", lambda: contenders.rq(url, rq_jobs)),
        ):
            conn.flushall()
            drain = contender()
            rates[name].append(drain.jobs_per_second)
            memory[name] = drain.memory
    medians = {name: statistics.median(values) for name, values in rates.items()}
    print(f"\none process per job, no-op{'jobs/s':>16}{'x RQ':>9}{'x bare':>9}   resident MiB")
    for name, median in medians.items():
        held = ", ".join(f"{process} {mib:.1f}" for process, mib in memory[name].items())
        print(
            f"  {name:<24}{median:>16.0f}{median / medians['RQ worker']:>9.1f}{median / medians['bare fork loop']:>9.2f}   {held}"
        )
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
