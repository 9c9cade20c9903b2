"""The table: every measurement of every contender, round after round, and the medians."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from benchmarks.measure import ROOT, Bench
from benchmarks.peers.base import Peer
from benchmarks.peers.registry import NAMES, peer
from benchmarks.server import Server

#: Jobs of a drain, so that each takes some seconds: the contenders differ by a factor of a hundred.
_JOBS = {
    "fusion": 3000,
    "fusion-heavy": 2000,
    "rq": 300,
    "rq-heavy": 100,
    "fusion-pool": 20000,
    "huey": 20000,
    "huey-priority": 20000,
}
_USUAL = 5000
_ENQUEUE = 3000
_LATENCY = 200
_SIZED = 2000
_BARE = 3000

Row = dict[str, float | None]


def installed(names: list[str]) -> dict[str, Peer]:
    """The contenders of these names, or all. One that is not installed is left out, with a line on stderr."""
    found = {}
    for name in names or NAMES:
        try:
            found[name] = peer(name)
        except ImportError as error:
            print(f"{name}: left out, {error}; pip install '.[bench]'", file=sys.stderr)
    return found


def measure(server: Server, key: str, contender: Peer, scale: float, processes: Sequence[int] = (1, 2)) -> Row:
    """One round of one contender. A value is None where its library has no such call. `processes`: of the drains."""
    jobs = max(20, int(_JOBS.get(key, _USUAL) * scale))
    row: Row = {}

    def alone(take: Callable[[Bench], Any]) -> Any:
        bench = Bench(server, key, contender)
        try:
            return take(bench)
        finally:
            bench.close()

    if not key.endswith("-heavy"):
        row["enqueue"] = alone(lambda b: b.rate("one", max(20, int(_ENQUEUE * scale))))
        row["enqueue_many"] = alone(lambda b: b.rate("many", max(20, int(10 * _ENQUEUE * scale))))
        row["bytes"] = alone(lambda b: b.bytes_per_job(max(20, int(_SIZED * scale)), 100))
        row["p50"], row["p99"] = alone(lambda b: b.latency(max(5, int(_LATENCY * scale))))
    for count in processes:

        def drain(bench: Bench, count: int = count) -> None:
            bench.fill(jobs)
            result = bench.drain(jobs, count)
            row[f"drain{count}"] = result.jobs_per_second
            row[f"requests{count}"], row[f"connections{count}"] = result.requests, result.connections
            row[f"memory{count}"] = result.memory

        alone(drain)
    return row


def bare(jobs: int) -> float:
    """Jobs/s of the loop that does nothing but fork (`benchmarks.bare`)."""
    out = subprocess.run(
        [sys.executable, "-m", "benchmarks.bare", str(jobs)],
        cwd=ROOT,
        env={**os.environ, "BENCH_WITNESS": os.devnull},
        check=True,
        capture_output=True,
        text=True,
    )
    return float(out.stdout)


def run(server: Server, names: list[str], rounds: int, scale: float) -> dict[str, Any]:
    """All rounds of all contenders, with the machine they were measured on."""
    contenders = installed(names)
    rows: dict[str, list[Row]] = {key: [] for key in contenders}
    bares: list[float] = []
    for number in range(1, rounds + 1):
        bares.append(bare(max(50, int(_BARE * scale))))
        for key, contender in contenders.items():
            started = time.monotonic()
            rows[key].append(measure(server, key, contender, scale))
            print(f"round {number}: {contender.name}, {time.monotonic() - started:.0f} s", file=sys.stderr)
    return {
        "when": datetime.now(UTC).strftime("%Y-%m-%d"),
        "server": server.name,
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "rounds": rounds,
        "bare": statistics.median(bares),
        "contenders": {
            key: {
                "name": contender.name,
                "version": f"{contender.package} {contender.version}",
                "isolates": contender.isolates,
                "keeps": contender.keeps,
                "medians": _medians(rows[key]),
                "rounds": rows[key],
            }
            for key, contender in contenders.items()
        },
    }


def _medians(rows: list[Row]) -> Row:
    found: Row = {}
    for name in rows[0]:
        values = [value for row in rows if (value := row[name]) is not None]
        found[name] = statistics.median(values) if values else None
    return found


def smoke(server: Server, names: list[str]) -> int:
    """Have every contender enqueue and run a few jobs. Returns 0 if all of them do, 1 otherwise; says nothing about speed."""
    failed = 0
    for key, contender in installed(names).items():
        try:
            row = measure(server, key, contender, 0.001, (2,))
        except RuntimeError as error:
            failed += 1
            print(f"{contender.name}: {error}")
        else:
            print(f"{contender.name} ({contender.package} {contender.version}): {len(row)} measurements")
    return int(failed > 0)
