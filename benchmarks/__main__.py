"""`python -m benchmarks COMMAND` measures Fusion on servers of its own; each COMMAND has --help.

- `table`: all that is to be reached, with its bounds, beside the contenders that these name; some minutes.
- `executors`: many jobs at once in one process, beside the libraries made for it; some minutes.
- `peers`: all contenders in all columns, and plots.
- `ab OLD NEW`: two versions of Fusion.
- `instructions`: the server's instructions for each script at its largest call, by valgrind.
- `features`: what each option of a job costs, by valgrind.
- `idle`: what an idle fleet costs, and how late it starts jobs that become due.
- `pages`: what each page of the dashboard costs with 200,000 jobs, and what its viewers cost Redis; some minutes.
- `trips`: files, functions and moves between files of one enqueue, one job in a worker, one GET.
- `compare SCENARIO`: one small service on seven libraries, and what happens to its jobs when a worker is killed, Redis restarts and so on.
- `page`: rewrite what the documents quote of saved results.

`python -m benchmarks.figures.limits`: what concurrency keys cost.

Only ratios inside one run mean anything: machines differ, and a busy one differs from itself.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def peers(arguments: Sequence[str]) -> int:
    """Measure all contenders. Returns the exit code."""
    from benchmarks import curves, matrix, report
    from benchmarks.figures import page

    parser = argparse.ArgumentParser(prog="python -m benchmarks peers", description="Measure all contenders in turns.")
    parser.add_argument("--rounds", type=int, default=3, help="of everything; medians are shown [%(default)s]")
    parser.add_argument("--only", metavar="A,B", default="", help="contenders, by the names in benchmarks/peers/registry.py")
    parser.add_argument("--scale", type=float, default=1.0, help="times as much of everything [%(default)s]")
    parser.add_argument("--no-curves", action="store_true", help="the table alone")
    parser.add_argument("--smoke", action="store_true", help="a handful of jobs each, to see that every contender still runs")
    parser.add_argument(
        "--save", action="store_true", help="write table, figures and plots to benchmarks/results, and what quotes them"
    )
    options = parser.parse_args(arguments)
    names = [name for name in options.only.split(",") if name]
    if options.smoke:
        return matrix.smoke(names)
    found = matrix.run(names, options.rounds, options.scale)
    found["curves"] = {} if options.no_curves else curves.run(options.scale)
    print(report.text(found))
    if options.save:
        report.write(found, page.RESULTS)
        page.refresh()
    return 0


def main() -> int:
    """Run a command. Returns its exit code."""
    command, arguments = "".join(sys.argv[1:2]), sys.argv[2:]
    if command == "peers":
        return peers(arguments)
    if command == "table":
        from benchmarks.figures.command import main as table

        return table(arguments)
    if command == "executors":
        from benchmarks.figures.command import main as table

        return table(arguments, crowds=True)
    if command == "ab":
        from benchmarks.ab.command import main as ab

        return ab(arguments)
    if command == "instructions":
        from benchmarks.instructions.command import main as instructions

        return instructions(arguments)
    if command == "features":
        from benchmarks.instructions.features import main as features

        return features(arguments)
    if command == "trips":
        from benchmarks.trips import main as trips

        return trips(arguments)
    if command == "idle":
        from benchmarks.idle import main as idle

        return idle(arguments)
    if command == "pages":
        from benchmarks.pages import main as pages

        return pages(arguments)
    if command == "compare":
        from benchmarks.compare.command import main as compare

        return compare(arguments)
    if command == "page":
        from benchmarks.figures import page

        page.refresh()
        return 0
    print(__doc__, file=sys.stdout if command in ("-h", "--help") else sys.stderr)
    return 0 if command in ("-h", "--help") else 2


if __name__ == "__main__":
    sys.exit(main())
