"""What goes on beside jobs: scheduled jobs that become due, ticks of cron entries, and processes at rest."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import psutil

from benchmarks import cpu
from benchmarks.contestant import ROOT, Contestant
from benchmarks.figures.figure import Effort, Figure, Found
from benchmarks.figures.starts import part
from benchmarks.peers.base import Conditions
from benchmarks.server import Server
from fusion import Queue
from fusion.cron.scheduler import Scheduler
from fusion.store.client.connections import connect
from fusion.store.layout.records import NewJob
from fusion.store.write.broker import Broker

_NOOP = "benchmarks.tasks.noop"
#: Cron entries that tick every second.
_ENTRIES = 20


def scheduler(effort: Effort) -> Found:
    """Promotion of many jobs at once, another's enqueues meanwhile, and the lateness of ticks."""
    with Server() as server:
        rate, waits = _promotion(server, effort.due)
        late = _lateness(server, max(2, int(effort.rest)))
    return Found(
        [
            Figure("scheduler", f"promotion of {effort.due:,} due jobs", rate, "jobs/s", at_least=20_000),
            Figure("scheduler", "another's enqueue meanwhile, p99", part(waits, 0.99), "ms"),
            Figure("scheduler", f"lateness of {len(late)} ticks, p50", part(late, 0.5), "ms"),
            Figure("scheduler", f"lateness of {len(late)} ticks, p99", part(late, 0.99), "ms", at_most=50.0),
        ]
    )


def rest(effort: Effort) -> Found:
    """CPU of a worker and of all that it started, while it waits for jobs."""
    found = []
    for mode, key in (("one process per job", "fusion"), ("2 warm processes", "fusion-pool")):
        with Contestant(key, Conditions(processes=1 if key == "fusion" else 2)) as one:
            time.sleep(1)  # what a start does by the way
            before = one.read()
            time.sleep(effort.rest)
            after = one.read()
        used = sum(after.cpu[kind] - before.cpu[kind] for kind in one.peer.kinds)
        found.append(Figure("rest", f"CPU, {mode}", 100 * used / effort.rest, "%", at_most=0.5))
        found.append(Figure("rest", f"requests, {mode}", (after.requests - before.requests - 1) / effort.rest, "/s"))
    with Server() as server, _scheduler(server.url) as process:
        time.sleep(1)
        began = cpu.own(process.pid)
        time.sleep(effort.rest)
        found.append(Figure("rest", "CPU, a scheduler", 100 * (cpu.own(process.pid) - began) / effort.rest, "%"))
    return Found(found)


def _promotion(server: Server, due: int) -> tuple[float, list[float]]:
    """Jobs/s of one scheduler with jobs that are all due at once; milliseconds of another's enqueues meanwhile."""
    conn = connect(server.url)
    broker = Broker(conn)
    at = time.time() + 4 + due / 20_000
    fields = Queue.prepare_data(_NOOP).new.fields
    for start in range(0, due, 500):
        batch = [NewJob(f"d{n}", 1, fields, due=at) for n in range(start, min(start + 500, due))]
        broker.enqueue("default", batch, secrets.token_hex(6))
    waits: list[float] = []
    with _scheduler(server.url):
        time.sleep(max(0.0, at - time.time() - 0.5))
        over = threading.Event()
        other = threading.Thread(target=_enqueue_until, args=(server.url, over, waits))
        other.start()
        while conn.zcard("rq:queue:default") == 0:
            time.sleep(0.0005)
        began = time.perf_counter()
        while conn.zcard("rq:scheduler:scheduled_jobs") > 0:
            time.sleep(0.005)
        took = time.perf_counter() - began
        over.set()
        other.join()
    conn.flushall()
    conn.close()
    return due / took, waits


def _enqueue_until(url: str, over: threading.Event, waits: list[float]) -> None:
    conn = connect(url)
    queue = Queue("other", conn)
    while not over.is_set():
        began = time.perf_counter()
        queue.enqueue(_NOOP)
        waits.append(1000 * (time.perf_counter() - began))
        time.sleep(0.001)
    conn.close()


def _lateness(server: Server, seconds: int) -> list[float]:
    """Milliseconds by which jobs of one-second entries are enqueued late, by the server's clock."""
    conn = connect(server.url)
    planner = Scheduler(conn)
    start = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=3)
    for n in range(_ENTRIES):
        planner.every(1, _NOOP, id=f"e{n}", misfire="all", start=start, end=start + timedelta(seconds=seconds - 1))
    queue = Queue("default", conn)
    with _scheduler(server.url):
        while len(queue) < _ENTRIES * seconds:
            time.sleep(0.1)
    late = []
    for job in queue.get_jobs(0, -1):
        planned = datetime.strptime(job.id.rpartition("-")[2], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        assert job.created_at is not None
        late.append(1000 * (job.created_at - planned).total_seconds())
    conn.close()
    return late


@contextmanager
def _scheduler(url: str) -> Iterator[psutil.Process]:
    """Have a scheduler run, by its command line; the block begins once it is registered."""
    env = {**os.environ, "FUSION_REDIS_URL": url, "FUSION_TASKS": "benchmarks.tasks"}
    process = subprocess.Popen([sys.executable, "run_worker.py", "scheduler", "-q"], env=env, cwd=ROOT)
    try:
        client = connect(url)
        while not client.zcard("rq:schedulers"):
            time.sleep(0.01)
        client.close()
        yield psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)
