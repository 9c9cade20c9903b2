"""`python -m benchmarks.figures` measures what Fusion promises by itself: starts of HIGH jobs beside long and beside many LOW ones, a worker at
rest, and a long backlog.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import psutil

from benchmarks.curves import claim_rates
from benchmarks.measure import ROOT, Bench
from benchmarks.peers.registry import peer
from benchmarks.server import Server
from fusion import Queue
from fusion.store.client.connections import connect

_STAMP, _HOLD, _NOOP = "benchmarks.tasks.stamp", "benchmarks.tasks.hold", "benchmarks.tasks.noop"


def high_beside_long(server: Server, count: int) -> tuple[float, float]:
    """p50 and p99 in ms of HIGH starts while 4 slots are held by 5 s LOW jobs and one is reserved."""
    bench = Bench(server, "fusion", peer("fusion"))
    conn = connect(server.url)
    queue = Queue("default", conn)
    queue.enqueue_many([Queue.prepare_data(_HOLD, (5.0,), priority=0) for _ in range(4 + 4 * count)])
    command = [*peer("fusion").commands(5, server.url)[0], "--reserve-high", "1"]
    try:
        with bench.workers(5, [command]):
            _until(lambda: conn.zcard("rq:wip:default") == 4)
            return _starts(bench, queue, count)
    finally:
        conn.close()
        bench.close()


def high_in_a_drain(server: Server, count: int, flags: Sequence[str], backlog: int = 100_000) -> tuple[float, float]:
    """p50 and p99 in ms of HIGH starts while so many LOW no-ops drain in pool mode."""
    bench = Bench(server, "fusion-pool", peer("fusion-pool"))
    conn = connect(server.url)
    queue = Queue("default", conn)
    queue.enqueue_many(Queue.prepare_data("benchmarks.tasks.quiet", priority=0) for _ in range(backlog))
    command = [*peer("fusion-pool").commands(2, server.url)[0], *flags]
    try:
        with bench.workers(2, [command]):
            _until(lambda: conn.zcard("rq:queue:default") < backlog * 0.99)
            times = _starts(bench, queue, count)
            if not conn.zcard("rq:queue:default"):
                print("  the LOW jobs ran out before the HIGH ones: use fewer", file=sys.stderr)
            return times
    finally:
        conn.close()
        bench.close()


def at_rest(server: Server, seconds: float, key: str) -> tuple[float, float]:
    """CPU of an idle worker, its fork server and horses in percent of a core, and requests to Redis per second."""
    bench = Bench(server, key, peer(key))
    conn = connect(server.url)
    bench.fill(1)
    try:
        with bench.workers(1) as (worker,):
            _until(lambda: bench.witness.stat().st_size == 1)
            time.sleep(1)  # the start's own work
            tree = [psutil.Process(worker.pid), *psutil.Process(worker.pid).children(recursive=True)]
            began, (requests, _) = sum(_cpu(process) for process in tree), server.counters()
            time.sleep(seconds)
            used, (now, _) = sum(_cpu(process) for process in tree) - began, server.counters()
            return used / seconds * 100, (now - requests - 1) / seconds
    finally:
        conn.close()
        bench.close()


def info_time(server: Server, jobs: int) -> float:
    """Seconds that `info` takes with so many jobs waiting, start of the interpreter included."""
    server.conn.flushall()
    conn = connect(server.url)
    Queue("default", conn).enqueue_many(Queue.prepare_data(_NOOP) for _ in range(jobs))
    conn.close()
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "run_worker.py", "info", "--url", server.url], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
    )
    return time.perf_counter() - started


def _starts(bench: Bench, queue: Queue, count: int) -> tuple[float, float]:
    """p50 and p99 in ms of so many HIGH jobs, each enqueued once the one before has started."""
    bench.witness.write_bytes(b"")
    for n in range(1, count + 1):
        queue.enqueue(_STAMP, time.monotonic_ns(), priority=2)
        _until(lambda n=n: bench.witness.read_bytes().count(b"\n") >= n)  # type: ignore[misc]
        time.sleep(0.02)
    return bench.starts()


def _until(condition: Callable[[], bool], limit: float = 60.0) -> None:
    until = time.monotonic() + limit
    while not condition():
        if time.monotonic() > until:
            raise RuntimeError("waited too long")
        time.sleep(0.001)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.figures", description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="HIGH jobs of each measurement")
    parser.add_argument("--million", type=int, default=1_000_000, help="jobs of the long backlog")
    options = parser.parse_args()
    with Server() as server:
        os.environ["BENCH_REDIS_URL"] = server.url
        p50, p99 = high_beside_long(server, options.count)
        print(f"HIGH start beside 4 slots of 5 s LOW jobs, 1 reserved: p50 {p50:.2f} ms, p99 {p99:.2f} ms")
        for name, flags in (("claim-ahead", ()), ("without", ("--claim-ahead", "0"))):
            p50, p99 = high_in_a_drain(server, options.count, flags)
            print(f"HIGH start while LOW no-ops drain in pool mode, {name}: p50 {p50:.2f} ms, p99 {p99:.2f} ms")
        for name, key in (("process per job", "fusion"), ("a warm process", "fusion-pool")):
            cpu, requests = at_rest(server, 10, key)
            print(f"worker at rest, {name}: {cpu:.2f} % CPU, {requests:.1f} requests/s")
        for backlog, figures in claim_rates(server, (1_000, options.million)).items():
            print(
                f"{backlog:,} jobs wait: claimed and finished {figures['rate']:,.0f}/s in turns of 8, {figures['bytes']:.0f} bytes each, "
                f"count in {figures['count_ms']:.2f} ms"
            )
        for backlog in (1_000, options.million):
            print(f"`info` with {backlog:,} jobs waiting: {info_time(server, backlog):.2f} s")


if __name__ == "__main__":
    main()
