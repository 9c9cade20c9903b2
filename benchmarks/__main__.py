"""`python -m benchmarks` measures Fusion beside other queues on one Redis, in turns, and writes table and plots to benchmarks/results/.

Only ratios inside one run mean anything: machines differ, and a busy one differs from itself. `python -m benchmarks ab OLD NEW` compares
two versions of Fusion.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks.server import Server

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Run `ab`, or measure the contenders."""
    if sys.argv[1:2] == ["ab"]:
        from benchmarks.ab.command import main as ab

        sys.exit(ab(sys.argv[2:]))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of everything; medians are shown")
    parser.add_argument("--only", metavar="A,B", default="", help="contenders, by the names in benchmarks/peers/registry.py")
    parser.add_argument("--scale", type=float, default=1.0, help="times as many jobs")
    parser.add_argument("--no-curves", action="store_true", help="the table alone")
    parser.add_argument(
        "--smoke", action="store_true", help="a handful of jobs each, to see that every contender still runs; writes nothing"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="where table, figures and plots go")
    options = parser.parse_args()
    with Server() as server:
        os.environ["BENCH_REDIS_URL"] = server.url  # before a contender's module is imported
        from benchmarks import curves, report, table

        names = [name for name in options.only.split(",") if name]
        if options.smoke:
            sys.exit(table.smoke(server, names))
        found = table.run(server, names, options.rounds, options.scale)
        found["curves"] = {} if options.no_curves else curves.run(server, options.scale)
        report.write(found, options.out)


if __name__ == "__main__":
    main()
