"""Every measurement of every contender, and the medians of all rounds."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from benchmarks.contestant import Contestant
from benchmarks.peers.base import Conditions, Peer
from benchmarks.peers.registry import NAMES, peer
from benchmarks.race import race
from benchmarks.server import Server

_TASK = "benchmarks.tasks.noop"
#: Seconds that a producer works; jobs whose memory is measured, with arguments of this many bytes; starts.
_PRODUCED, _SIZED, _BYTES, _STARTS = 1.0, 2_000, 100, 200
#: Slices of a drain, and their seconds.
_SLICES, _SECONDS = 8, 0.6

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


def produced(key: str, scale: float) -> Row:
    """Rates of a producer, and the bytes of what it sends. A value is None where its library has no such call."""
    with Contestant(key, Conditions(), working=False) as one:
        rates = {
            name: one.order(order, _TASK, _PRODUCED * scale, 0) for name, order in (("enqueue", "one"), ("enqueue_many", "many"))
        }
        row: Row = {name: found[0] / found[1] if found else None for name, found in rates.items()}
        jobs = max(20, int(_SIZED * scale))
        before = one.bytes_used()
        one.order("fill", _TASK, jobs, _BYTES)
        row["bytes"] = (one.bytes_used() - before) / jobs
        return row


def started(key: str, scale: float) -> Row:
    """p50 and p99 in ms from the call of enqueue to the start of the task, on an idle worker."""
    with Contestant(key, Conditions()) as one:
        time.sleep(0.5 * min(1.0, scale))
        one.order("start", "benchmarks.tasks.stamp", 3, 0.02)
        times = sorted(one.order("start", "benchmarks.tasks.stamp", max(5, int(_STARTS * scale)), 0.02))
        return {"p50": times[len(times) // 2], "p99": times[len(times) * 99 // 100]}


def drained(keys: Sequence[str], processes: int, scale: float) -> dict[str, Row]:
    """What workers do that run this many jobs at a time."""
    entered = {key: (key, Conditions(processes=processes)) for key in keys}
    laps = race(entered, max(1, int(_SLICES * scale)), max(0.1, min(_SECONDS, _SECONDS * scale)))
    return {
        key: {
            f"drain{processes}": lap.rate,
            f"requests{processes}": lap.requests,
            f"connections{processes}": lap.connections,
            f"memory{processes}": lap.memory,
            f"cpu{processes}": lap.spent,
        }
        for key, lap in laps.items()
    }


def run(names: list[str], rounds: int, scale: float) -> dict[str, Any]:
    """All rounds of all contenders, with the machine they were measured on."""
    contenders = installed(names)
    bare = contenders.pop("bare", None)
    rows: dict[str, list[Row]] = {key: [] for key in contenders}
    bares = []
    for number in range(1, rounds + 1):
        began = time.monotonic()
        found: dict[str, Row] = {key: {**produced(key, scale), **started(key, scale)} for key in contenders}
        for processes in (1, 2):
            for key, row in drained([*contenders, *(["bare"] if bare else [])], processes, scale).items():
                found.setdefault(key, {}).update(row)
        bares += [rate for rate in [found.pop("bare", {}).get("drain1")] if rate]
        for key, row in found.items():
            rows[key].append(row)
        print(f"round {number}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    with Server() as server:
        server_name = server.name
    return {
        "when": datetime.now(UTC).strftime("%Y-%m-%d"),
        "server": server_name,
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "rounds": rounds,
        "bare": statistics.median(bares) if bares else 0.0,
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


def smoke(names: list[str]) -> int:
    """Have every contender enqueue and run a few jobs. Returns 0 if all of them do, 1 otherwise; says nothing about speed."""
    failed = 0
    for key, contender in installed(names).items():
        try:
            row = drained([key], 2, 0.01)[key]
            if contender.producer:
                row |= {**produced(key, 0.05), **started(key, 0.01)}
        except RuntimeError as error:
            failed += 1
            print(f"{contender.name}: {error}")
        else:
            print(f"{contender.name} ({contender.package} {contender.version}): {len(row)} measurements")
    return int(failed > 0)
