"""`python -m benchmarks.schedule` measures the cost and the lateness of a scheduler, with real processes and a Redis of their own."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone

import psutil
import redis

from fusion import Queue
from fusion.cron.scheduler import Scheduler
from fusion.store.client.connections import connect
from fusion.store.embedded.instance import EmbeddedRedis
from fusion.store.layout.records import NewJob
from fusion.store.write.broker import Broker

NOOP = "benchmarks.tasks.noop"


def main() -> None:
    """Take the measurements on a Redis of their own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.schedule", description=__doc__)
    parser.add_argument("--due", type=int, default=100_000, help="jobs that become due at once")
    parser.add_argument("--seconds", type=int, default=20, help="of one-second ticks, 20 entries")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fusb", dir="/tmp") as home:
        server = EmbeddedRedis(home, persistent=False)
        server.start()
        try:
            run(server.url, options.due, options.seconds)
        finally:
            server.stop()


def run(url: str, due: int = 100_000, seconds: int = 20) -> None:
    """Take all three measurements."""
    conn = connect(url)
    promotion(url, conn, due)
    lateness(url, conn, seconds)
    idle(url, conn)
    conn.close()


def promotion(url: str, conn: redis.Redis, due: int) -> None:
    """Print the rate at which one scheduler promotes jobs that are all due at once, and the time that another's enqueues take meanwhile."""
    conn.flushall()
    broker = Broker(conn)
    at = time.time() + 4 + due / 20_000
    fields = Queue.prepare_data(NOOP).new.fields
    for start in range(0, due, 500):
        batch = [NewJob(f"d{i}", 1, fields, due=at) for i in range(start, min(start + 500, due))]
        broker.enqueue("default", batch, secrets.token_hex(6))
    waits: list[float] = []
    with scheduler(url):
        time.sleep(max(0.0, at - time.time() - 0.5))
        over = threading.Event()
        other = threading.Thread(target=_enqueue_until, args=(url, over, waits))
        other.start()
        while conn.zcard("rq:queue:default") == 0:
            pass
        started = time.perf_counter()
        while conn.zcard("rq:scheduler:scheduled_jobs") > 0:
            time.sleep(0.005)
        took = time.perf_counter() - started
        over.set()
        other.join()
    during = sorted(waits)
    print(f"promotion: {due} due jobs at {due / took:.0f}/s; another's enqueue meanwhile {_ms(during)} ms (p50, p99, worst)")


def _enqueue_until(url: str, over: threading.Event, waits: list[float]) -> None:
    queue = Queue("other", connect(url))
    while not over.is_set():
        started = time.perf_counter()
        queue.enqueue(NOOP)
        waits.append(time.perf_counter() - started)
        time.sleep(0.001)


def lateness(url: str, conn: redis.Redis, seconds: int) -> None:
    """Print how late jobs of one-second entries are enqueued, by the server's clock."""
    conn.flushall()
    planner, entries = Scheduler(conn), 20
    start = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(seconds=3)
    for i in range(entries):
        planner.every(1, NOOP, id=f"e{i}", misfire="all", start=start, end=start + timedelta(seconds=seconds - 1))
    with scheduler(url):
        while len(Queue("default", conn)) < entries * seconds:
            time.sleep(0.1)
    late = []
    for job in Queue("default", conn).get_jobs(0, -1):
        planned = datetime.strptime(job.id.rpartition("-")[2], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
        assert job.created_at is not None
        late.append((job.created_at - planned).total_seconds())
    print(f"ticks: {len(late)} of {entries} entries, late by {_ms(sorted(late))} ms (p50, p99, worst)")


def idle(url: str, conn: redis.Redis) -> None:
    """Print CPU, commands and memory of a scheduler that has one job for tomorrow."""
    conn.flushall()
    Queue("default", conn).enqueue_in("1d", NOOP)
    with scheduler(url) as process:
        time.sleep(3)
        before, commands = process.cpu_times(), _commands(conn)
        time.sleep(10)
        after = process.cpu_times()
        used = after.user + after.system - before.user - before.system
        print(
            f"idle: {used * 10:.2f} % CPU, {(_commands(conn) - commands) / 10:.1f} commands/s, {process.memory_info().rss / 2**20:.1f} MiB"
        )


def _commands(conn: redis.Redis) -> int:
    return int(conn.info("stats")["total_commands_processed"])


def _ms(found: list[float]) -> str:
    return ", ".join(f"{1000 * found[min(len(found) - 1, int(len(found) * part))]:.1f}" for part in (0.5, 0.99, 1.0))


@contextmanager
def scheduler(url: str) -> Iterator[psutil.Process]:
    """Have a scheduler run, by its command line; the block begins once it is registered."""
    env = {**os.environ, "FUSION_REDIS_URL": url, "FUSION_TASKS": "benchmarks.tasks"}
    process = subprocess.Popen([sys.executable, "run_worker.py", "scheduler", "-q"], env=env)
    try:
        client = connect(url)
        while not client.zcard("rq:schedulers"):
            time.sleep(0.01)
        client.close()
        yield psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


if __name__ == "__main__":
    main()
