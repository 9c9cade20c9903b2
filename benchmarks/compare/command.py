"""`python -m benchmarks compare SCENARIO`: the same small service on seven libraries, and what happens to its jobs. See docs/compare.md."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.compare.contenders import NAMES
from benchmarks.compare.running import HOME, ROOT, Running
from benchmarks.compare.scenarios import ALONE, SCENARIOS, Row
from benchmarks.server import binary

PAGE = ROOT / "docs" / "compare.md"
REQUIREMENTS = ROOT / "benchmarks" / "compare" / "requirements.txt"


def environment() -> None:
    """Make .venv/compare, or make it anew when requirements.txt has changed. Compile Fusion, as pip does the others."""
    stamp = HOME / ".stamp"
    if not stamp.exists() or stamp.read_text() != REQUIREMENTS.read_text():
        subprocess.run([sys.executable, "-m", "venv", "--clear", HOME], check=True)
        pip = [HOME / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        subprocess.run([*pip, "--requirement", REQUIREMENTS], check=True)
        stamp.write_text(REQUIREMENTS.read_text())
    subprocess.run(
        [HOME / "bin" / "python", "-m", "compileall", "-q", ROOT / "fusion", ROOT / "benchmarks" / "compare"], check=True
    )


def take(scenario: str, name: str, logs: str) -> tuple[str, Row]:
    """Run one scenario with one contender. Returns its name with its version, and its row; what fails is in the row."""
    version = ""
    try:
        with Running(name) as running:
            version = str(running.version)
            try:
                return f"{name} {version}", SCENARIOS[scenario](running)
            finally:
                if logs:
                    with open(os.path.join(logs, f"{scenario}-{name}.log"), "w") as file:
                        file.write(running.log())
    except Exception as error:
        return f"{name} {version}".strip(), {"failed": f"{type(error).__name__}: {error}"}


def table(rows: Sequence[tuple[str, Row]]) -> str:
    """The rows as a table in Markdown: a column for each contender."""
    columns = [name for name, _ in rows]
    lines = [["", *columns], ["---"] * (len(rows) + 1)]
    asked = dict.fromkeys(what for _, row in rows for what in row)
    lines += [[what, *(row.get(what, "") for _, row in rows)] for what in asked]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def save(scenario: str, found: str, page: Path) -> None:
    """Write what a scenario found into its place in the page."""
    begin, end = f"<!-- {scenario}: made by `python -m benchmarks compare {scenario} --save` -->", f"<!-- end of {scenario} -->"
    head, _, rest = page.read_text().partition(begin)
    _, found_end, tail = rest.partition(end)
    if not found_end:
        raise ValueError(f"{page.name} has no place for {scenario}: the lines {begin} and {end}")
    page.write_text(f"{head}{begin}\n{found}\n{end}{tail}")


def main(arguments: Sequence[str]) -> int:
    """Run a scenario. Returns the exit code: 1 if a contender could not be run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks compare", description=__doc__)
    parser.add_argument("scenario", choices=list(SCENARIOS), help="what goes wrong")
    parser.add_argument("--only", default=",".join(NAMES), metavar="A,B", help="contenders [default: all]")
    parser.add_argument("--logs", default="", metavar="FOLDER", help="keep what the processes print there")
    parser.add_argument("--save", action="store_true", help="write the table into docs/compare.md")
    options = parser.parse_args(arguments)
    names = options.only.split(",")
    if unknown := set(names) - set(NAMES):
        parser.error(f"no contender {', '.join(unknown)}; there are {', '.join(NAMES)}")
    if options.save and set(names) != set(NAMES):
        parser.error("--save is for all contenders, without --only")
    environment()
    load, began = os.getloadavg()[0], time.monotonic()
    with ThreadPoolExecutor(1 if options.scenario in ALONE else len(names)) as threads:
        rows = list(threads.map(lambda name: take(options.scenario, name, options.logs), names))
    server = str(binary()).partition(" (")[0]
    told = (
        f"{datetime.now(UTC).date()}, {server}, Python {sys.version.split()[0]}, {os.cpu_count()} cores, "
        f"load {load:.1f} before, {time.monotonic() - began:.0f} s"
    )
    print(f"{SCENARIOS[options.scenario].__doc__}\n\n{told}\n\n{table(rows)}")
    if options.save:
        save(options.scenario, f"{told}\n\n{table(rows)}", PAGE)
    return int(any("failed" in row for _, row in rows))
