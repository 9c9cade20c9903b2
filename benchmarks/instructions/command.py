"""The command line of `python -m benchmarks instructions`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Sequence

from benchmarks.instructions import cases, graph_cases
from benchmarks.instructions.case import CASES, Case
from benchmarks.instructions.counted import Call, CountedServer, valgrind_is_here

#: Of one call: about 10 ms of the server's one thread.
MOST_INSTRUCTIONS = 25_000_000
#: Of one call, where instructions can't be counted. Some calls reach the bound above with fewer: 900 are enough where each job is an HMGET of
#: many fields and an event.
MOST_COMMANDS = 1_900
#: Scripts that may take less of both: this part. People who look at graphs are to hold nobody up.
PARTS = {"walk_graph": 0.5}
#: Scripts that may take longer, and why.
EXEMPT = {"schema_raise": "once for ever in a Redis, when an operator raises the layout"}
_MISSING = "valgrind is not on PATH (Debian: apt-get install valgrind): commands are counted, not instructions"


def main(arguments: Sequence[str]) -> int:
    """Count and print. Returns 1 if a call is over the bound."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks instructions",
        description="Count the server's instructions for each script at its largest call: the same on any machine, however busy.",
        epilog=f"A call may take {MOST_INSTRUCTIONS:,} instructions, about 10 ms; without valgrind, {MOST_COMMANDS:,} commands.",
    )
    parser.add_argument("--only", metavar="A,B", default="", help="cases whose name or script is one of these, or begins so")
    parser.add_argument("--list", action="store_true", help="print the cases and their scripts, and count nothing")
    parser.add_argument("--commands", action="store_true", help="count commands alone, as where there is no valgrind")
    parser.add_argument("--json", action="store_true", help="print every call as JSON in place of the table")
    options = parser.parse_args(arguments)
    chosen = select([word for word in options.only.split(",") if word])
    if not chosen:
        parser.error(f"no case or script is called {options.only}; --list shows all")
    if options.list:
        print("\n".join(f"{one.name:60} {' '.join(sorted(one.scripts))}" for one in chosen))
        return 0
    counts = not options.commands and valgrind_is_here()
    if not counts and not options.commands:
        print(_MISSING, file=sys.stderr)
    found = dict[str, list[Call]]()
    for one in chosen:
        with CountedServer(instructions=counts) as server:
            if not found and not options.json:
                print(f"{server.name}, {'callgrind' if counts else 'commands alone'}")
                print(f"{'case':60} {'largest call':18} {'instructions':>13} {'commands':>9} {'calls':>6}")
            found[one.name] = run(server, one)
        if not options.json:
            print(row(one, found[one.name]), flush=True)
    if options.json:
        print(json.dumps({name: [vars(call) for call in calls] for name, calls in found.items()}, indent=1))
    over = [name for name, calls in found.items() if any(map(is_over, calls))]
    if over:
        print(f"over the bound: {', '.join(over)}", file=sys.stderr)
    return 1 if over else 0


def select(words: Collection[str]) -> list[Case]:
    """Return the cases that these words name; all of them without words."""
    everything = list(CASES.values())
    return [one for one in everything if not words or any(one.name.startswith(word) or word in one.scripts for word in words)]


def run(server: CountedServer, one: Case) -> list[Call]:
    """Run a case on an empty server, once. Returns its counted calls."""
    steps = one.steps(server.conn)
    next(steps)
    with server.counting() as found:
        if next(steps, found) is None:
            raise RuntimeError(f"{one.name}: a case yields once")
    if missing := one.scripts - {call.script for call in found}:
        raise RuntimeError(f"{one.name} did not call {', '.join(sorted(missing))}")
    return found


def is_over(call: Call) -> bool:
    """Return whether a call is over its bound."""
    if call.script in EXEMPT:
        return False
    part = PARTS.get(call.script, 1)
    return call.commands > part * MOST_COMMANDS if call.instructions is None else call.instructions > part * MOST_INSTRUCTIONS


def row(one: Case, calls: Sequence[Call]) -> str:
    """Return the line of a case: its largest call, and the number of calls."""
    most = max(calls, key=lambda call: (call.instructions or 0, call.commands))
    count = "-" if most.instructions is None else f"{most.instructions:,}"
    mark = "  OVER" if any(map(is_over, calls)) else f"  exempt: {EXEMPT[most.script]}" if most.script in EXEMPT else ""
    return f"{one.name:60} {most.script:18} {count:>13} {most.commands:>9,} {len(calls):>6}{mark}"


__all__ = ["cases", "graph_cases", "main", "run", "select"]
