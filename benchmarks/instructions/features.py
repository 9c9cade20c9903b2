"""`python -m benchmarks features`: what each option of a job costs, in instructions and commands of the server and in instructions of the process
that enqueues it. Commands are the same on every machine. Instructions differ from run to run."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.guard import guarded_home
from benchmarks.instructions.counted import Call, CountedServer, valgrind_is_here
from benchmarks.instructions.featured_calls import BATCH, COUNTED, FEATURES, TASK
from fusion import Queue
from fusion.store.write.broker import Broker
from tests.kit.hands import Hand, outcome

#: The figures that docs/performance.md shows.
SAVED = Path(__file__).resolve().parents[1] / "results" / "features.json"
#: Jobs with each option on the server. The cheapest counts: the first job of a key, and one call each second, do more.
_JOBS = 9
_PARTS = ("enqueue", "enqueue commands", "run", "run commands")
_TOTAL = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)


def main(arguments: Sequence[str]) -> int:
    """Count and print. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks features", description="Count what each option of a job costs.")
    parser.add_argument(
        "--save", action="store_true", help="write the figures to benchmarks/results, and the table to docs/performance.md"
    )
    options = parser.parse_args(arguments)
    if not valgrind_is_here():
        print("valgrind is not on PATH (Debian: apt-get install valgrind)", file=sys.stderr)
        return 2
    found = counted(instructions=True)
    for name, client in _of_client().items():
        found["features"][name]["client"] = client
    print(page(found))
    if options.save:
        from benchmarks.figures.page import refresh

        SAVED.write_text(json.dumps(found, indent=1) + "\n")
        refresh()
    return 0


def counted(*, instructions: bool) -> dict[str, Any]:
    """Return the server's work for jobs with each option. Without `instructions`, count only commands."""
    rows = dict[str, dict[str, Any]]()
    with CountedServer(instructions=instructions) as server:
        broker = Broker(server.conn)
        broker.open_batch(BATCH, "n", 86400, 86400, {})
        with server.counting() as calls:
            for nth, name in enumerate(FEATURES):
                rows[name] = dict(zip(_PARTS, _of_server(broker, calls, f"q{nth}", name), strict=True))
            event = _of_event(server)
        return {"python": sys.version.split()[0], "server": server.name, "event": event, "features": rows}


def _of_server(broker: Broker, calls: list[Call], queue: str, name: str) -> tuple[int, ...]:
    calls.clear()
    before = ""
    for n in range(_JOBS):
        new = Queue.prepare_data(TASK, job_id=f"{queue}-{n}", **FEATURES[name](n, before)).new
        broker.enqueue(queue, [new], new.nonce)
        before = new.id
    enqueues = [_sum([call]) for call in calls[1:]]
    hand = Hand(broker, queue, name=f"{queue}.1")
    (held,) = hand.claim()
    runs = list[tuple[int, int]]()
    for _ in range(_JOBS - 1):
        hand.turn()  # writes the sign of life of this second
        calls.clear()
        turn = hand.turn(outcome(held), slots=[0])
        if turn.releases:
            broker.release()
        (held,) = turn.jobs or hand.claim()
        runs.append(_sum(calls))
    return *map(min, zip(*enqueues, strict=True)), *map(min, zip(*runs, strict=True))


def _of_event(server: CountedServer) -> int:
    """Return the instructions that write one event as the scripts do, less those of an empty script."""
    entries: Any = server.conn.xrange("rq:events", count=1)
    words = [word for pair in entries[0][1].items() for word in pair]
    texts = "return redis.call('XADD', 'rq:events', '*', unpack(ARGV))", "return 1"
    shas = [server.conn.script_load(text) for text in texts]
    write, nothing = (server.call("event", partial(server.conn.evalsha, sha, 0, *words)) for sha in shas)
    return (write.instructions or 0) - (nothing.instructions or 0)


def _sum(calls: Sequence[Call]) -> tuple[int, int]:
    return sum(call.instructions or 0 for call in calls), sum(call.commands for call in calls)


def _of_client() -> dict[str, int]:
    """Return the instructions that a call of `Queue.enqueue` takes in its process, by feature."""
    with CountedServer(instructions=False) as server, tempfile.TemporaryDirectory(dir=guarded_home()) as home:
        Broker(server.conn).open_batch(BATCH, "n", 86400, 86400, {})
        out = Path(home, "out")
        command = ["valgrind", "--tool=callgrind", "--dump-before=getppid", f"--callgrind-out-file={out}", sys.executable]
        command += ["-m", "benchmarks.instructions.featured_calls", f"unix://{server.path}/redis.sock?db=0"]
        done = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"the calls failed:\n{done.stderr[-2000:]}")
        dumps = sorted(out.parent.glob("out.*"), key=lambda path: int(path.suffix[1:]))
        totals = [int(found[1]) for one in dumps if (found := _TOTAL.search(one.read_text()))]
    if len(totals) < 2 * len(FEATURES):
        raise RuntimeError(f"callgrind wrote {len(totals)} totals for {len(FEATURES)} features")
    return {name: round(totals[2 * nth + 1] / COUNTED) for nth, name in enumerate(FEATURES)}


def page(found: Mapping[str, Any]) -> str:
    """Return the table in Markdown: the figures of a plain job, and what each feature adds to them."""
    rows = dict(found["features"])
    plain = rows.pop("no option")
    lines = [
        f"{found['server']}, Python {found['python']}. Thousands of instructions, as callgrind counts them.",
        "",
        "| a job with | producer | enqueue: server | commands | run: server | commands |",
        "|---|---:|---:|---:|---:|---:|",
        f"| no option | {' | '.join(_cells(plain, None))} |",
        *(f"| {name} | {' | '.join(_cells(row, plain))} |" for name, row in rows.items()),
        "",
        f"Each event is one of these commands, and takes {round(found['event'] / 1000):,d} thousand of the instructions.",
    ]
    return "\n".join(lines) + "\n"


def _cells(row: Mapping[str, int], plain: Mapping[str, int] | None) -> list[str]:
    cells = []
    for part in ("client", *_PARTS):
        count: float = row[part] - (plain[part] if plain else 0)
        if "commands" not in part:
            count = round(count / 1000)
        cells.append(f"{count:+,d}" if plain else f"{count:,d}")
    return cells
