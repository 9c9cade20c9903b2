"""Rates by the number of jobs that wait, the size of arguments, and the number of processes: at each point the contenders work in turns."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.peers.base import Conditions
from benchmarks.peers.registry import peer
from benchmarks.race import race

_BACKLOGS = (1_000, 10_000, 100_000, 1_000_000)
_SIZES = (100, 1_000, 10_000, 100_000)
_PROCESSES = (1, 2, 3, 4)
#: Slices of each contender at a point, and their seconds.
_SLICES, _SECONDS = 4, 0.5

_OURS = ("fusion", "fusion-pool")
_ALL = (*_OURS, "huey", "celery")


def run(scale: float) -> dict[str, Any]:
    """Title, axis and points (jobs/s) of each curve. `scale`: of the longest backlog."""
    backlogs = [size for size in _BACKLOGS if size <= max(_BACKLOGS) * scale] or [_BACKLOGS[0]]
    return {
        "backlog": _curve(
            "rate by jobs waiting", "jobs waiting", _OURS, {n: Conditions(processes=2, waiting=n) for n in backlogs}
        ),
        "payload": _curve(
            "rate by size of the arguments, 2 processes", "bytes", _ALL, {n: Conditions(processes=2, size=n) for n in _SIZES}
        ),
        "workers": _curve("rate by processes at a time", "processes", _ALL, {n: Conditions(processes=n) for n in _PROCESSES}),
    }


def _curve(title: str, axis: str, keys: tuple[str, ...], points: dict[int, Conditions]) -> dict[str, Any]:
    lines: dict[str, list[tuple[float, float]]] = {}
    for point, asked in points.items():
        for key, lap in race({key: (key, asked) for key in keys}, _SLICES, _SECONDS).items():
            lines.setdefault(peer(key).name, []).append((point, lap.rate))
    print(f"curve: {title}", file=sys.stderr)
    return {"title": title, "axis": axis, "lines": lines}
