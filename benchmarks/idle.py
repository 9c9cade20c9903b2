"""The command line of `python -m benchmarks idle`: what an idle fleet costs, and how late it starts jobs that become due."""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from redis import Redis

from benchmarks import cpu
from benchmarks.contestant import ROOT
from benchmarks.figures.starts import part
from benchmarks.guard import guarded_home
from benchmarks.server import Server
from fusion import Queue
from fusion.cron.scheduler import Scheduler
from fusion.store.client.connections import connect

_STAMP = "benchmarks.tasks.stamp"
#: Workers that start at the same time; seconds that a start may take; seconds after that for their first duties.
_AT_ONCE, _START, _SETTLE = 3, 90.0, 5.0
#: Seconds after which a job becomes due, at least and at most; seconds between two enqueues.
_DELAYS, _GAP = (0.2, 2.5), 0.1


@dataclass(frozen=True)
class Idle:
    """What an idle fleet costs. `scripts` and `requests`: of one worker, a second. `server`: percent of a core of Redis for all workers,
    without what it takes when idle (`alone`). `worker`: percent of a core of one worker, with all its processes."""

    workers: int
    seconds: float
    scripts: float
    requests: float
    server: float
    alone: float
    worker: float

    def __str__(self) -> str:
        return (
            f"{self.workers} idle workers, {self.seconds:.0f} s: {self.scripts:.2f} scripts and {self.requests:.2f} requests a worker and second; "
            f"Redis {self.server:.2f} % of a core, {self.server / self.workers:.4f} % for each worker (alone {self.alone:.2f} %); "
            f"a worker {self.worker:.2f} % of a core"
        )


@dataclass(frozen=True)
class Lateness:
    """Milliseconds from the time at which a job is due to the first line of its task."""

    what: str
    jobs: int
    p50: float
    p99: float
    most: float

    @classmethod
    def of(cls, what: str, late: list[float]) -> Lateness:
        """Sum up what was measured."""
        return cls(what, len(late), part(late, 0.5), part(late, 0.99), max(late))

    def __str__(self) -> str:
        return f"{self.what}: {self.jobs} jobs start late by {self.p50:.1f} ms (p50), {self.p99:.1f} ms (p99), {self.most:.1f} ms at most"


def main(arguments: Sequence[str]) -> int:
    """Measure and print. Returns 0."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks idle",
        description="Measure what an idle fleet costs, and how late it starts jobs that become due.",
    )
    parser.add_argument("--workers", type=int, default=8, help="[%(default)s]")
    parser.add_argument(
        "--seconds",
        type=float,
        default=30.0,
        help="of the idle fleet, and then of a cron entry of one second [%(default)s]",
    )
    parser.add_argument(
        "--jobs", type=int, default=200, help="jobs of enqueue_in; 0: do not measure how late jobs start [%(default)s]"
    )
    parser.add_argument(
        "--nice",
        type=int,
        default=0,
        help="niceness of all measured processes; below 0 (needs root) they run before other programs",
    )
    parser.add_argument("--json", action="store_true", help="print JSON in place of sentences")
    options = parser.parse_args(arguments)
    os.nice(options.nice)
    with Server() as server, tempfile.TemporaryDirectory(dir=guarded_home()) as home:
        witness = Path(home, "witness")
        witness.touch()
        alone = _used(server.conn, options.seconds / 3)
        with ExitStack() as stack:
            pids = list[int]()
            for _ in range(options.workers):
                # A few at a time: starting all at once would keep the machine busy for long.
                pids.append(stack.enter_context(_process(server, witness, "worker", "default")))
                _wait(lambda: _waiting(server.conn) > len(pids) - _AT_ONCE, _START)
            _wait(lambda: _waiting(server.conn) >= len(pids), _START)
            time.sleep(_SETTLE)
            found: list[Idle | Lateness] = [_idle(server.conn, pids, options.seconds, alone)]
            if options.jobs:
                found.append(Lateness.of("enqueue_in", _due(server.url, witness, options.jobs)))
                with _process(server, witness, "scheduler"):
                    found.append(Lateness.of("cron, each second", _ticks(server, witness, max(3, int(options.seconds)))))
        load = os.getloadavg()
        conditions = f"{server.name}, {os.cpu_count()} CPUs, load {load[0]:.1f}, Python {sys.version.split()[0]}"
    if options.json:
        print(json.dumps({"conditions": conditions, "found": [asdict(one) for one in found]}))
    else:
        print("\n".join([*map(str, found), conditions]))
    return 0


def _idle(conn: Redis, pids: Sequence[int], seconds: float, alone: float) -> Idle:
    before, spent, began = _counts(conn), _spent(pids), time.monotonic()
    server = _used(conn, seconds)
    took = time.monotonic() - began
    after, used = _counts(conn), _spent(pids) - spent
    each = took * len(pids)
    return Idle(
        len(pids),
        took,
        (after[0] - before[0]) / each,
        (after[1] - before[1]) / each,
        server - alone,
        alone,
        100 * used / each,
    )


def _used(conn: Redis, seconds: float) -> float:
    """Return the percent of a core that the server takes in this time."""
    before, began = _cpu(conn), time.monotonic()
    time.sleep(seconds)
    return 100 * (_cpu(conn) - before) / (time.monotonic() - began)


def _cpu(conn: Redis) -> float:
    info = conn.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


def _counts(conn: Redis) -> tuple[int, int]:
    """Return the scripts, and the reads from sockets, until now. A pipeline counts once."""
    rows = conn.info("commandstats")
    scripts = sum(rows[name]["calls"] for name in ("cmdstat_evalsha", "cmdstat_eval") if name in rows)
    return scripts, int(conn.info("stats")["total_reads_processed"])


def _spent(pids: Sequence[int]) -> float:
    """Return the CPU seconds of the workers and of their child processes."""
    return sum(sum(cpu.by_kind(pid, ("worker", "rest")).values()) for pid in pids)


def _waiting(conn: Redis) -> int:
    return sum(client["cmd"] == "blpop" for client in conn.client_list())


def _due(url: str, witness: Path, jobs: int) -> list[float]:
    """Return how late jobs of `enqueue_in` start, in the order of their starts."""
    conn, before = connect(url), len(_stamps(witness))
    queue = Queue("default", conn)
    for _ in range(jobs):
        delay = round(random.uniform(*_DELAYS), 3)
        queue.enqueue(_STAMP, time.monotonic_ns() + int(delay * 1e9), enqueue_in=delay)
        time.sleep(_GAP)
    _wait(lambda: len(_stamps(witness)) >= before + jobs, 60)
    conn.close()
    return [(started - due) / 1e6 for due, started in _stamps(witness)[before:]]


def _ticks(server: Server, witness: Path, ticks: int) -> list[float]:
    """Return how late the jobs of a cron entry of one second start."""
    conn, before = connect(server.url), len(_stamps(witness))
    _wait(lambda: bool(conn.zcard("rq:schedulers")), 60)
    first = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=3)
    last = first + timedelta(seconds=ticks - 1)
    Scheduler(conn).every(1, _STAMP, args=[0], id="tick", misfire="all", start=first, end=last)
    offset = statistics.median(time.time_ns() - time.monotonic_ns() for _ in range(9))
    _wait(lambda: len(_stamps(witness)) >= before + ticks, ticks + 60)
    conn.close()
    started = sorted(started + int(offset) for _, started in _stamps(witness)[before:])
    planned = [int(first.timestamp() + n) * 10**9 for n in range(ticks)]
    return [(at - due) / 1e6 for at, due in zip(started, planned, strict=True)]


def _stamps(witness: Path) -> list[tuple[int, int]]:
    return [(int(due), int(started)) for due, started in (line.split() for line in witness.read_text().splitlines())]


def _wait(check: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not check():
        if time.monotonic() > until:
            raise TimeoutError(f"not within {seconds:.0f} s")
        time.sleep(0.1)


@contextmanager
def _process(server: Server, witness: Path, *words: str) -> Iterator[int]:
    """Run a process of the command line, with its log in a file beside the witness."""
    env = {**os.environ, "FUSION_REDIS_URL": server.url, "FUSION_TASKS": "benchmarks.tasks", "BENCH_WITNESS": str(witness)}
    with witness.with_name("log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "run_worker.py", *words, "-q"], env=env, cwd=ROOT, stderr=log)
    try:
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
