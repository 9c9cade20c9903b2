"""The first page: the health of the fleet, the causes, and buttons to fix them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from fusion.dashboard.charts import Chart, Line, Steps
from fusion.dashboard.filters import seconds, term
from fusion.dashboard.page import Page, PageAction, PageRequest
from fusion.dashboard.pages import findings

CLASSES = ("high", "moderate", "low")
#: Most queues that are read; most waits, running jobs and failed jobs that are shown.
_QUEUES, _WAITS, _RUNNING, _FAILED = 200, 12, 15, 5
#: Minutes of failures that are compared with an hour before, and of the history that has both.
_LATELY, _HOUR = 10, "70m"
#: Seconds for which the history, which changes every minute, is cached.
_HISTORY = 15.0
#: The time ranges of the charts: seconds, the history's steps, and seconds for which it is cached.
SPANS = {
    "1h": (3600, 60, _HISTORY),
    "6h": (21600, 60, 60.0),
    "1d": (86400, 60, 120.0),
    "7d": (604800, 3600, 300.0),
    "30d": (2592000, 3600, 300.0),
}


def overview(view: PageRequest) -> dict[str, Any]:
    """Load the verdict, the longest waits, running and failed jobs, and the lights of schedulers, sinks and callbacks."""
    info = view.ask("/info", kept=findings.KEPT)
    found = view.get("/queues", kept=findings.KEPT, limit=_QUEUES)
    sinks = view.ask("/sinks", kept=findings.KEPT)
    hour = view.get("/history", kept=_HISTORY, since=_HOUR)
    span = view.args.get("since", "")
    span = span if span in SPANS else "1h"
    history = hour if span == "1h" else view.get("/history", kept=SPANS[span][2], since=span)
    return {
        "info": info,
        "causes": findings.shown(info["verdict"]["causes"]) if info else [],
        "found": found,
        "waits": oldest_waits(found["queues"])[:_WAITS],
        "running": view.get("/running", limit=_RUNNING),
        "term": term,
        "most_failed": _FAILED,
        "lights": lights(info, sinks) if info and sinks else [],
        "flow": flow_of(found["queues"], hour["history"]),
        "failed": failures(hour["history"]),
        "charts": charts_of(history["history"], span),
        "waiting": sum(one["queue_length"] for one in found["queues"]),
        "sparks": sparks(hour["history"]),
        "waited": times_of(history["seconds"], "wait"),
        "history": history,
        "span": span,
        "spans": list(SPANS),
    }


def oldest_waits(queues: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the waits of queues, by class from HIGH down, the longest first in each class."""
    rows = [
        {"class": name, "queue": queue, "count": queue["by_priority"][name], "since": queue["oldest_by_priority"][name]}
        for queue in queues
        for name in CLASSES
        if queue["by_priority"][name]
    ]
    return sorted(rows, key=lambda row: (CLASSES.index(row["class"]), row["since"] is None, row["since"] or ""))


def failures(history: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many failed in the last minutes, and in the same number of minutes an hour before. `worse`: at least half as many again, and more
    than a few."""
    now, before = (sum(step["failed"] for step in part) for part in (history[-_LATELY:], history[:_LATELY]))
    return {"minutes": _LATELY, "now": now, "before": before, "worse": now >= 5 and now > 1.5 * before}


def times_of(seconds: Mapping[str, Any], what: str) -> list[tuple[str, Mapping[str, float | None]]]:
    """Return p50, p95 and p99 of `wait` or `run` by priority."""
    return [(priority, times[what]) for priority, times in seconds.items() if what in times]


def lights(info: Mapping[str, Any], sinks: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return name, kind, word and page of each light: schedulers, sinks, callbacks."""
    alive, entries = sum(one["alive"] for one in info["schedulers"]), info["cron"]["entries"]
    if alive:
        found = [("Scheduler", "good", f"{alive} alive", "/cron")]
    else:
        found = [("Scheduler", "bad" if entries else "good", "none alive" if entries else "none needed", "/cron")]
    for sink in sinks["sinks"]:
        kind = {"delivering": "good", "failing": "warn"}.get(sink["state"], "bad")
        behind = f", {sink['behind']:,} behind" if sink["behind"] else ""
        found.append((f"Sink {sink['name']}", kind, f"{sink['state']}{behind}", "/relay"))
    if not sinks["sinks"]:
        found.append(("Sinks", "good", "none configured", "/relay"))
    troubled = any(one["check"] == "callbacks" for one in info["verdict"]["causes"])
    waiting = info["callbacks"]["waiting"]
    found.append(
        (
            "Callbacks",
            "warn" if troubled else "good",
            f"{waiting:,} waiting" if waiting else "not delivered" if troubled else "none waiting",
            "/relay",
        )
    )
    return found


def flow_of(queues: Sequence[Mapping[str, Any]], history: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return jobs per second from the samples of the maintenance; without samples, from the workers' counts of the last full minutes."""
    flows = [queue["per_minute"] for queue in queues if queue["per_minute"]]
    if flows:
        return {name: sum(flow[name] for flow in flows) / 60 for name in ("came", "went", "failed")}
    lately = history[-6:-1]
    seconds = 60 * len(lately) or 1
    failed = sum(step["failed"] for step in lately)
    return {"came": None, "went": (sum(step["completed"] for step in lately) + failed) / seconds, "failed": failed / seconds}


def charts_of(rows: Sequence[Mapping[str, Any]], span: str) -> list[tuple[str, Chart]]:
    """Return the charts of the fleet with their headings: what finished, what failed, what waited, and how long."""
    total, step, _ = SPANS[span]
    now = datetime.fromisoformat(rows[-1]["at"]).timestamp() if rows else 0
    steps = Steps.of(rows, step, total, now)
    depths = steps.by_class(lambda row, name: row["waiting"][name], CLASSES)
    return [
        *ended_of(steps, span),
        ("Waiting", Chart(f"Jobs that waited, by priority, in the last {span}", "jobs", steps.at, steps.size, depths)),
        waits_of(steps, span, lambda row, name: row["wait_p95"][name]),
    ]


def ended_of(steps: Steps, span: str) -> list[tuple[str, Chart]]:
    """Return the charts of what finished, and of what failed."""
    each = "in each minute" if steps.size == 60 else f"a minute, in steps of {seconds(steps.size)},"
    finished = [Line("finished", "good", steps.rate(lambda row: row["completed"]))]
    failed = [
        Line("failed", "bad", steps.rate(lambda row: row["failed"])),
        Line("retried", "warn", steps.rate(lambda row: row["retried"])),
    ]
    return [
        ("Throughput", Chart(f"Jobs that finished {each} in the last {span}", "jobs a minute", steps.at, steps.size, finished)),
        ("Failures", Chart(f"Jobs that failed {each} in the last {span}", "jobs a minute", steps.at, steps.size, failed)),
    ]


def waits_of(steps: Steps, span: str, value: Callable[[Mapping[str, Any], str], float | None]) -> tuple[str, Chart]:
    """Return the chart of how long jobs waited."""
    lines = steps.by_class(value, CLASSES)
    label = f"The longest wait of 95 % of the jobs, by priority, in the last {span}"
    return "Wait before the start, p95", Chart(label, "", steps.at, steps.size, lines, durations=True)


def sparks(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    """Return the last hour of the figures that tiles show, without the minute that is not over."""
    hour = rows[-61:-1]
    return {
        "went": [row["completed"] + row["failed"] for row in hour],
        "failed": [row["failed"] for row in hour],
        "waiting": [None if row["waiting"]["low"] is None else sum(row["waiting"].values()) for row in hour],
    }


def stop(view: PageRequest) -> str:
    """Stop a running job."""
    job = view.field("job")
    told = view.post(f"/jobs/{quote(job, safe='')}/stop")
    return f"Job {job} is being stopped by its worker." if told["pending"] else f"Job {job} is stopped."


PAGES = (
    Page("/", "overview.html", "Overview", overview, nav="Overview"),
    PageAction("/running/stop", stop),
    *findings.ACTIONS,
)
