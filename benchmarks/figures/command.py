"""The command line of `python -m benchmarks table`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.figures import page
from benchmarks.figures.figure import SMOKE, Effort
from benchmarks.figures.table import CROWDS, SECTIONS, measure, merged


def main(arguments: Sequence[str], crowds: bool = False) -> int:
    """Measure, print and, if told so, save. Returns 0, whether all bounds are reached or not. `crowds`: what runs many jobs at once, in place
    of the table."""
    sections, saved = (CROWDS, page.CROWDS) if crowds else (SECTIONS, page.SAVED)
    usual = Effort()
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {'executors' if crowds else 'table'}",
        description="Measure all that is to be reached, beside the contenders that it names; some minutes a run.",
    )
    parser.add_argument("--runs", type=int, default=1, help="of everything; medians and spread are shown [%(default)s]")
    parser.add_argument("--only", metavar="A,B", default=",".join(sections), help="sections [%(default)s]")
    parser.add_argument("--slices", type=int, default=usual.slices, help="of each contender in a race [%(default)s]")
    parser.add_argument("--seconds", type=float, default=usual.seconds, help="of a slice [%(default)s]")
    parser.add_argument("--starts", type=int, default=usual.starts, help="jobs whose start is timed [%(default)s]")
    parser.add_argument("--backlog", type=int, default=usual.backlog, help="jobs of the long queue [%(default)s]")
    parser.add_argument("--smoke", action="store_true", help="a handful of jobs each, to see that all of it runs")
    parser.add_argument(
        "--save", action="store_true", help=f"write benchmarks/results/{saved.name}, and the documents that quote it"
    )
    parser.add_argument("--json", action="store_true", help="print what would be saved in place of the table")
    options = parser.parse_args(arguments)
    names = options.only.split(",")
    if unknown := set(names) - set(sections):
        parser.error(f"no such section: {', '.join(sorted(unknown))}; there are {', '.join(sections)}")
    if options.save and (options.smoke or set(names) != set(sections)):
        parser.error("--save takes all sections in full")
    chosen = {name: getattr(options, name) for name in ("slices", "seconds", "starts", "backlog")}
    effort = SMOKE if options.smoke else replace(usual, **chosen)
    runs = []
    for number in range(1, options.runs + 1):
        began = time.monotonic()
        runs.append(measure(names, effort))
        print(f"run {number} of {options.runs}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    found = merged(runs)
    print(json.dumps(found, indent=1) if options.json else page.text(found))
    if options.save:
        saved.write_text(json.dumps(found, indent=1) + "\n")
        page.refresh()
    return 0
