"""The results as a page with a table, as JSON and as plots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

#: Column: key, heading, digits after the point, whether more is better.
_COLUMNS = (
    ("drain1", "jobs/s, 1 process", 0, True),
    ("drain2", "jobs/s, 2 processes", 0, True),
    ("enqueue", "enqueue/s", 0, True),
    ("enqueue_many", "bulk enqueue/s", 0, True),
    ("p50", "start p50 ms", 2, False),
    ("p99", "start p99 ms", 2, False),
    ("cpu2", "CPU ms a job, 2 processes", 2, False),
    ("requests2", "requests a job", 2, False),
    ("connections2", "connections a job", 2, False),
    ("bytes", "bytes a waiting job", 0, False),
    ("memory2", "workers MiB", 0, False),
)


def write(found: dict[str, Any], out: Path) -> None:
    """Write results.json, README.md and an SVG for the table and for each curve."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(found, indent=1) + "\n")
    (out / "README.md").write_text(text(found))
    _plots(found, out)


def text(found: dict[str, Any]) -> str:
    """The page. A section of its own names the columns in which another is ahead of Fusion."""
    contenders = found["contenders"]
    measured = (
        f"{found['when']}, {found['server']}, Python {found['python']}, {found['cpus']} cores, {_rounds(found)}. "
        "No-op tasks that leave one byte in a file, in a module that imports next to nothing; all log errors alone. Rates: all contenders are "
        "up, each with a Redis of its own, and one at a time works for a slice. TCP on one machine, whose cores Redis, producers and workers "
        "share. Only ratios inside one run mean anything. A loop that forks a process per job and does nothing else: "
        f"{found['bare']:,.0f} jobs/s."
    )
    headings = ["", "version", "own process per job", "survives its worker", *(heading for _, heading, _, _ in _COLUMNS)]
    lines = ["# Results", "", measured, "", f"| {' | '.join(headings)} |", "|---|---|---|---|" + "---:|" * len(_COLUMNS)]
    for row in contenders.values():
        cells = [_number(row["medians"].get(key), digits) for key, _, digits, _ in _COLUMNS]
        yes = ["yes" if row[what] else "no" for what in ("isolates", "keeps")]
        lines.append(f"| {row['name']} | {row['version']} | {yes[0]} | {yes[1]} | " + " | ".join(cells) + " |")
    lines += ["", *_lost(contenders), "", "![jobs/s with 2 processes](drain.svg)"]
    for key, curve in found.get("curves", {}).items():
        lines += ["", f"![{curve['title']}]({key}.svg)"]
    return "\n".join(lines) + "\n"


def _rounds(found: dict[str, Any]) -> str:
    return "one round" if found["rounds"] == 1 else f"{found['rounds']} rounds, medians"


def _lost(contenders: dict[str, Any]) -> list[str]:
    """The columns in which another is better than the better of Fusion's two ways."""
    ours = [row for key, row in contenders.items() if key in ("fusion", "fusion-pool")]
    lines = []
    for key, heading, digits, more in _COLUMNS:
        mine = [value for row in ours if (value := row["medians"].get(key)) is not None]
        if not mine:
            continue
        best = max(mine) if more else min(mine)
        ahead = [
            f"{row['name']} {_number(value, digits)}"
            for name, row in contenders.items()
            if not name.startswith("fusion")
            and (value := row["medians"].get(key)) is not None
            and round(value, digits) != round(best, digits)
            and (value > best) is more
        ]
        if ahead:
            lines.append(f"- {heading}: {_number(best, digits)}; better: {', '.join(ahead)}")
    return ["## Where others are ahead", "", *(lines or ["Nowhere in this table."])]


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _plots(found: dict[str, Any], out: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "fusion"  # the same figures make the same file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4))
    rows = [(row["name"], row["medians"]["drain2"]) for row in found["contenders"].values() if row["medians"].get("drain2")]
    rows.sort(key=lambda row: row[1])
    axes.barh([name for name, _ in rows], [rate for _, rate in rows], color=["C1" if "Fusion" in n else "C0" for n, _ in rows])
    axes.set_xscale("log")
    axes.set_xlabel("jobs/s, 2 processes")
    _save(figure, out / "drain.svg")
    for key, curve in found.get("curves", {}).items():
        figure, axes = pyplot.subplots(figsize=(6, 4))
        for name, points in curve["lines"].items():
            axes.plot([x for x, _ in points], [y for _, y in points], marker="o", label=name)
        if key in ("backlog", "payload"):
            axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel(curve["axis"])
        axes.set_ylabel("jobs/s")
        axes.set_title(curve["title"])
        axes.legend()
        _save(figure, out / f"{key}.svg")
    pyplot.close("all")


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
