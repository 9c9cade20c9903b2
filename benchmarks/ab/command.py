"""The command line of `python -m benchmarks ab`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.ab import page
from benchmarks.ab.cases import CASES
from benchmarks.ab.checkouts import checkout, revision
from benchmarks.ab.comparison import compare
from benchmarks.ab.instructions import instructions
from benchmarks.guard import guarded_home
from benchmarks.server import Server


def main(arguments: Sequence[str]) -> int:
    """Compare, print and return the exit code: 1 if a ratio is worse than the limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks ab", description="Compare two versions of Fusion in turns.")
    parser.add_argument("old", metavar="OLD", help="a checkout, or a git revision of this one")
    parser.add_argument("new", metavar="NEW", help="as OLD")
    parser.add_argument("--pairs", type=int, default=30, help="of slices in each case [%(default)s]")
    parser.add_argument("--seconds", type=float, default=0.4, help="of a slice [%(default)s]")
    parser.add_argument("--starts", type=int, default=6, help="how often all processes start afresh [%(default)s]")
    parser.add_argument("--only", metavar="A,B", default=",".join(CASES), help="cases [%(default)s]")
    parser.add_argument("--limit", type=float, help="percent; exit with 1 if a ratio is worse by more than this")
    parser.add_argument(
        "--nice", type=int, default=0, help="of all that is measured; below 0 (root) it goes before the machine's other work"
    )
    parser.add_argument(
        "--count", action="store_true", help="count instructions of Python only, which other work of the machine does not change"
    )
    parser.add_argument("--json", action="store_true", help="figures in place of the table")
    options = parser.parse_args(arguments)
    names = options.only.split(",")
    if unknown := set(names) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    if not 1 <= options.starts <= options.pairs:
        parser.error("--starts: at least 1, at most as many as pairs")
    os.nice(options.nice)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=guarded_home()) as home:
        try:
            old, new = checkout(options.old, Path(home, "old")), checkout(options.new, Path(home, "new"))
        except ValueError as error:
            parser.error(str(error))
        if options.count:
            return _count(names, old, new, options.limit)
        found = {
            name: compare(CASES[name], old, new, options.pairs, options.starts, options.seconds) for name in dict.fromkeys(names)
        }
        conditions = {
            "OLD": f"{options.old} {revision(old)}",
            "NEW": f"{options.new} {revision(new)}",
            "slices": f"{options.pairs} pairs of {options.seconds:g} s in each case, {options.starts} starts of all processes",
            "jobs": "no-ops of a module that imports os, sys and time; workers with --quiet (pool-logs: without), 1 slot unless told otherwise",
            "machine": f"{_server()}, niceness {os.nice(0)}, Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f} before and "
            f"{os.getloadavg()[0]:.1f} after",
        }
    if options.json:
        print(json.dumps(page.figures(found, conditions, options.limit), indent=1))
    else:
        print(page.table(found, conditions, options.limit))
    worse = page.worse(found, options.limit)
    print(*worse, sep="\n", file=sys.stderr)
    return 1 if worse else 0


def _count(names: Sequence[str], old: Path, new: Path, limit: float | None) -> int:
    """Print the instructions a job of each case; returns the exit code."""
    worse = 0
    print(f"{'Python instructions a job':<52}{'OLD':>9}{'NEW':>9}{'NEW/OLD':>10}")
    for name in names:
        case = CASES[name]
        if case is CASES["start"]:
            continue  # the worker does the same as in `fork`
        before, after = instructions(old, case), instructions(new, case)
        worse += limit is not None and after > before * (1 + limit / 100)
        whose = "producer" if case.worker is None else "worker"
        print(f"{f'{name}, {whose}: {case.title}':<52}{before:>9,.0f}{after:>9,.0f}{after / before:>10.3f}")
    return 1 if worse else 0


def _server() -> str:
    with Server() as server:
        return server.name
