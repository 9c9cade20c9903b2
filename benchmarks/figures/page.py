"""The figures as text: for a terminal, and for the documents that quote them. The saved ones are in benchmarks/results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.figures.figure import SPENT
from benchmarks.figures.table import CROWD_ROWS, ROWS, reached

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
#: What `table --save` writes.
SAVED = RESULTS / "figures.json"
#: What `executors --save` writes.
CROWDS = RESULTS / "executors.json"
#: What `peers --save` writes.
PEERS = RESULTS / "results.json"
#: Races whose CPU docs/performance.md shows.
_RACES = {
    "fork": "bare task module",
    "site": "default task list, no-op",
    "fetch": "default task list, one request",
    "big": "60 MB",
    "pool": "warm",
}


#: Races of many jobs at once, as docs/performance.md calls them.
_CROWDS = {
    "waits": "20 ms of I/O, 200 coroutines",
    "coroutines": "no-ops, 200 coroutines",
    "threads": "20 ms of I/O, 25 threads",
    "100 threads": "20 ms of I/O, 100 threads",
    "executors, 20 ms of I/O": "Fusion's executors, 20 ms of I/O",
    "executors, CPU": "Fusion's executors, CPU work on 2 processes",
}


def text(found: dict[str, Any]) -> str:
    """All rows with their targets, conditions and figures."""
    lines = [_measured(found)]
    for key, row in (ROWS | CROWD_ROWS).items():
        figures = [figure for figure in found["figures"] if figure["row"] == key]
        if not figures:
            continue
        lines += ["", f"{row.title}: {row.target}", f"  ({row.conditions})"]
        lines += [
            f"  {figure['what']:74} {_value(figure):>28}  {_bound(figure):>12}  {_verdict(figure)}".rstrip() for figure in figures
        ]
    lines += ["", "rates and CPU milliseconds a job, by kind of process"]
    for race, laps in found["races"].items():
        lines += [
            f"  {race}: {name:42} {lap['rate']:>9,.0f} jobs/s {_total(lap):7.3f} = {_parts(lap)}" for name, lap in laps.items()
        ]
    lines += [f"  {figure['what']:50} {_value(figure):>28}" for figure in _raceless(found)]
    judged = [verdict for figure in found["figures"] if (verdict := reached(figure)) is not None]
    lines += ["", f"{sum(judged)} of {len(judged)} bounds are reached", *_ELSEWHERE]
    return "\n".join(lines) + "\n"


_ELSEWHERE = ("CPU a job in warm processes beside that of an older version: python -m benchmarks ab OLD . --only pool",)


def figures(found: dict[str, Any]) -> str:
    """A table in Markdown of all that has a bound, is a ratio, or a time."""
    lines = [_measured(found), "", "| | measured | to reach | | CPU a job |", "|---|---:|---:|---|---:|"]
    spent = {(one["row"], one["what"].removesuffix(SPENT)): one for one in found["figures"] if one["what"].endswith(SPENT)}
    for key, row in (ROWS | CROWD_ROWS).items():
        of_row = [one for one in found["figures"] if one["row"] == key and not one["what"].endswith(SPENT)]
        shown = [one for one in of_row if reached(one) is not None or one["unit"] in ("x", "ms", "MiB")]
        if shown:
            lines.append(f"| **{row.title}** | | | | |")
        for one in shown:
            cpu_ratio = spent.get((key, one["what"]))
            cells = [one["what"], _value(one), _bound(one), _verdict(one), _value(cpu_ratio) if cpu_ratio else ""]
            lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "Conditions:", ""]
    lines += [
        f"- {row.title}: {row.conditions}."
        for key, row in (ROWS | CROWD_ROWS).items()
        if any(one["row"] == key for one in found["figures"])
    ]
    return "\n".join(lines) + "\n"


def cpu(found: dict[str, Any]) -> str:
    """A table in Markdown of rates, and of CPU by kind of process."""
    lines = ["| | jobs/s | CPU ms a job | of it |", "|---|---:|---:|---|"]
    for race, title in _RACES.items():
        if race in found["races"]:
            lines.append(f"| **{title}** | | | |")
            lines += [
                f"| {name} | {lap['rate']:,.0f} | {_total(lap):.2f} | {_parts(lap)} |"
                for name, lap in found["races"][race].items()
            ]
    lines.append("| **without a worker** | | | |")
    lines += [f"| {one['what']} | {one['median']:,.0f} | | |" for one in _raceless(found)]
    return "\n".join(lines) + "\n"


def crowds(found: dict[str, Any]) -> str:
    """A table in Markdown of what contenders did that run many jobs at once."""
    lines = ["| | jobs/s | CPU ms a job | requests a job |", "|---|---:|---:|---:|"]
    for race, laps in found["races"].items():
        lines.append(f"| **{_CROWDS.get(race, race)}** | | | |")
        lines += [
            f"| {name} | {lap['rate']:,.0f} | {_total(lap):.2f}: {_parts(lap)} | {lap['requests']:.2f} |"
            for name, lap in laps.items()
        ]
    return "\n".join(lines) + "\n"


def executors(found: dict[str, Any]) -> str:
    """A table in Markdown of the four executors, a column each."""
    value = {one["what"]: one["median"] for one in found["figures"]}
    names = ("process", "pool", "thread", "asyncio")
    rows = {
        "jobs at once": ["25 processes", "25 processes", "25 threads", "200 coroutines"],
        "memory for each job that waits, MiB": [f"{value[f'Fusion, {name}: a job']:.1f}" for name in names],
    }
    if naps := found["races"].get("executors, 20 ms of I/O"):
        rows["20 ms of I/O, jobs/s"] = [f"{naps[name]['rate']:,.0f}" for name in names]
        rows["CPU for each of these jobs, ms"] = [f"{_total(naps[name]):.2f}" for name in names]
    if work := found["races"].get("executors, CPU"):
        rows["CPU work on 2 processes, jobs/s"] = [f"{work[name]['rate']:,.0f}" for name in names]
    lines = [_measured(found), "", f"| | {' | '.join(f'`{name}`' for name in names)} |", "|---|---:|---:|---:|---:|"]
    lines += [f"| {title} | {' | '.join(cells)} |" for title, cells in rows.items()]
    return "\n".join(lines) + "\n"


def stored(found: dict[str, Any]) -> str:
    """A table in Markdown of the bytes of a queued job."""
    value = {one["what"]: one["median"] for one in found["figures"] if one["row"] == "bytes"}
    lines = ["| bytes of arguments | Fusion | rq |", "|---|---:|---:|"]
    for size in ("0", "20", "100", "1,000"):
        ours, theirs = (value.get(f"{name}, {size} bytes of arguments") for name in ("Fusion", "RQ"))
        if ours is not None and theirs is not None:
            lines.append(f"| {size} | {ours:,.0f} | {theirs:,.0f} |")
    return "\n".join(lines) + "\n"


def peers(found: dict[str, Any]) -> str:
    """The table of README.md: some contenders and columns of what `python -m benchmarks peers` has found."""
    lines = ["| | jobs/s, 1 and 2 processes | enqueue/s | start p50, p99 ms | requests a job |", "|---|---|---|---|---|"]
    for key in ("fusion", "fusion-pool", "rq", "celery", "huey", "dramatiq", "saq", "taskiq"):
        if (contender := found["contenders"].get(key)) is None:
            continue
        of = contender["medians"]
        lines.append(
            f"| {contender['name']} {_short(contender['version'])} | {of['drain1']:,.0f}, {of['drain2']:,.0f} | {of['enqueue']:,.0f} | "
            f"{of['p50']:.2f}, {of['p99']:.2f} | {of['requests2']:.2f} |"
        )
    measured = f"{found['when']}, {found['server']}, Python {found['python']}, {found['cpus']} cores"
    return (
        f"{measured}; no-ops, all log errors alone, {'one round' if found['rounds'] == 1 else 'medians'}.\n\n"
        + "\n".join(lines)
        + "\n"
    )


def blocks() -> Iterator[tuple[str, str, str]]:
    """Document, name and content of all that is made of saved figures."""
    if SAVED.exists():
        found = json.loads(SAVED.read_text())
        yield "docs/performance.md", "figures", figures(found)
        yield "docs/performance.md", "CPU of a job", cpu(found)
        yield "docs/performance.md", "bytes", stored(found)
    if CROWDS.exists():
        found = json.loads(CROWDS.read_text())
        yield "docs/performance.md", "many jobs at once", figures(found) + "\n" + crowds(found)
        yield "docs/executors.md", "executors", executors(found)
    if (ROOT / "benchmarks/results/features.json").exists():
        from benchmarks.instructions import features

        yield "docs/performance.md", "features", features.page(json.loads(features.SAVED.read_text()))
    if PEERS.exists():
        yield "README.md", "peers", peers(json.loads(PEERS.read_text()))


def refresh() -> None:
    """Write what the documents quote."""
    for document, name, content in blocks():
        path = ROOT / document
        path.write_text(placed(path.read_text(), name, content))


def placed(document: str, name: str, content: str) -> str:
    """The document with this between its marks of that name. Raises ValueError if it has none."""
    start, end = f"<!-- {name}: made by `make bench` -->\n", f"<!-- end of {name} -->\n"
    before, _, rest = document.partition(start)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"no lines {start.strip()} and {end.strip()}")
    return f"{before}{start}{content}{end}{after}"


def _measured(found: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items() if number)
    runs = "1 run" if found["runs"] == 1 else f"{found['runs']} runs: medians, the least and the greatest"
    where = f"{found['server']}, Python {found['python']}, {found['cpus']} cores, load {found['load']:.1f} before"
    return f"{found['when']}, {where}, {versions}. {runs}."


def _value(figure: dict[str, Any]) -> str:
    """With what runs differ by."""
    low, middle, high = (_number(figure[name], figure["unit"]) for name in ("least", "median", "greatest"))
    unit = f" {figure['unit']}" if figure["unit"] not in ("", "x", "/s") else figure["unit"]
    return f"{middle}{unit}" + (f" ({low} to {high})" if low != high else "")


def _number(value: float, unit: str) -> str:
    return f"{value:,.0f}" if unit in ("jobs/s", "bytes") else f"{value:.3f}" if unit == "" else f"{value:.2f}"


def _bound(figure: dict[str, Any]) -> str:
    for sign, name in ((">=", "at_least"), ("<=", "at_most")):
        if figure[name] is not None:
            return f"{sign} {figure[name]:,g}"
    return ""


def _verdict(figure: dict[str, Any]) -> str:
    verdict = reached(figure)
    return "" if verdict is None else "reached" if verdict else "not reached"


def _raceless(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Rates that no worker makes."""
    return [one for one in found["figures"] if one["row"] == "rates" and one["what"].split(":")[0] not in found["races"]]


def _total(lap: dict[str, Any]) -> float:
    return float(sum(lap["cpu"].values()))


def _parts(lap: dict[str, Any]) -> str:
    return ", ".join(f"{kind} {ms:.3f}" for kind, ms in lap["cpu"].items())


def _short(version: str) -> str:
    """The version without the package's name and the last number."""
    return ".".join(version.split()[-1].split(".")[:2])
