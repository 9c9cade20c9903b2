"""The result as a table for people and as figures for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from benchmarks.ab.comparison import Comparison, Measured
from benchmarks.ab.ratios import CONFIDENCE, Verdict

#: Scripts that are shown of each case.
_SCRIPTS = 3


def figures(found: dict[str, Comparison], conditions: dict[str, str], limit: float | None) -> dict[str, Any]:
    """All of it, for `--json`. Ratios are NEW divided by OLD; CPU is in milliseconds a job; `starts` holds the values of all slices."""
    return {
        "conditions": conditions,
        "limit": limit,
        "worse": worse(found, limit),
        "cases": {
            name: {
                "title": one.case.title,
                "ratios": {
                    what: {"median": ratio.median, "low": ratio.low, "high": ratio.high, "percent_worse": ratio.percent_worse}
                    for what, ratio in one.ratios().items()
                },
                "old": _side(one.old),
                "new": _side(one.new),
            }
            for name, one in found.items()
        },
    }


def worse(found: dict[str, Comparison], limit: float | None) -> list[str]:
    """The ratios that are worse than the limit."""
    return [
        f"{name}, {what}: {ratio.percent_worse:.1f} % worse"
        for name, one in found.items()
        for what, ratio in one.ratios().items()
        if limit is not None and ratio.verdict(limit) is Verdict.WORSE
    ]


def table(found: dict[str, Comparison], conditions: dict[str, str], limit: float | None) -> str:
    """The page: conditions, then a block for each case."""
    lines = [f"{name + ':':<10} {text}" for name, text in conditions.items()]
    for name, one in found.items():
        lines += ["", f"{name}: {one.case.title}", f"  {'':<34}{'OLD':>11}{'NEW':>11}{'NEW/OLD':>10}   {CONFIDENCE:.0%} interval"]
        lines += _rows(one, limit)
    return "\n".join(lines)


def _rows(one: Comparison, limit: float | None) -> Iterator[str]:
    for what, ratio in one.ratios().items():
        medians = "".join(map(_number, one.medians(what)))
        said = "" if limit is None else f"   {ratio.verdict(limit).value}"
        yield f"  {what:<34}{medians}{ratio.median:>10.3f}   {ratio.low:.3f} to {ratio.high:.3f}{said}"
    old, new = _side(one.old), _side(one.new)
    for kind in old["cpu"]:
        yield _plain(f"  {kind}", old["cpu"][kind], new["cpu"].get(kind, 0.0))
    yield _plain("round trips a job", old["requests"], new["requests"])
    yield _plain("scripts a job", old["scripts"], new["scripts"])
    yield _plain("other commands a job, scripts' own", old["calls"], new["calls"])
    yield _plain("script us a job", old["script_us"], new["script_us"])
    theirs = {script.keys: script for script in one.new.scripts}
    for script in one.old.scripts[:_SCRIPTS]:
        if script.keys in theirs:
            yield f"  script on {script.keys}"
            yield _plain("  calls a job", script.calls, theirs[script.keys].calls)
            yield _plain("  us a call", script.us, theirs[script.keys].us)
    if old["modules"]:
        yield _plain("modules in a job's process", old["modules"], new["modules"])


def _side(side: Measured) -> dict[str, Any]:
    total = side.total
    cpu = {kind: 1000 * seconds / total.jobs for kind, seconds in total.cpu.items() if seconds > 0}
    return {
        "starts": [[found.value for found in start] for start in side.starts],
        "cpu": cpu,
        "jobs": total.jobs,
        "requests": total.requests / total.jobs,
        "scripts": total.scripts / total.jobs,
        "calls": total.calls / total.jobs,
        "script_us": total.script_us / total.jobs,
        "slowest": [asdict(script) for script in side.scripts[:_SCRIPTS]],
        "modules": side.modules,
    }


def _plain(what: str, old: float, new: float) -> str:
    return f"  {what:<34}{_number(old)}{_number(new)}" + (f"{new / old:>10.3f}" if old else "")


def _number(value: float) -> str:
    return f"{value:>11,.0f}" if value >= 1000 else f"{value:>11.4g}"
