"""The first page: the health of the fleet, the causes, and buttons to fix them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from fusion.dashboard.page import Page, PageAction, PageRequest
from fusion.dashboard.pages import findings
from fusion.dashboard.pages.jobs import term

CLASSES = ("high", "moderate", "low")
#: Most queues that are read; most waits, running jobs and failed jobs that are shown.
_QUEUES, _WAITS, _RUNNING, _FAILED = 200, 12, 15, 5
#: Minutes of the charts, which end with the last full minute; minutes of failures that are compared with an hour before.
_MINUTES, _LATELY = 60, 10
#: Seconds for which the history, which changes every minute, is cached.
_HISTORY = 15.0


def overview(view: PageRequest) -> dict[str, Any]:
    """Load the verdict, the longest waits, running and failed jobs, and the lights of schedulers, sinks and callbacks."""
    info = view.ask("/info", kept=findings.KEPT)
    found = view.get("/queues", kept=findings.KEPT, limit=_QUEUES)
    sinks = view.ask("/sinks", kept=findings.KEPT)
    history = view.get("/history", kept=_HISTORY, since=f"{_MINUTES + _LATELY}m")
    return {
        "info": info,
        "causes": findings.shown(info["verdict"]["causes"]) if info else [],
        "found": found,
        "waits": oldest_waits(found["queues"])[:_WAITS],
        "running": view.get("/running"),
        "term": term,
        "most_running": _RUNNING,
        "most_failed": _FAILED,
        "lights": lights(info, sinks) if info and sinks else [],
        "flow": flow_of(found["queues"], history["history"]),
        "failed": failures(history["history"]),
        "charts": _charts(history["history"][-_MINUTES - 1 : -1]),
        "waited": times_of(history["seconds"], "wait"),
        "history": history,
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
    found.append(("Callbacks", "warn" if troubled else "good", f"{waiting:,} waiting" if waiting else "none waiting", "/relay"))
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


def _charts(steps: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[float | None]]]:
    return {
        "ended": {
            "failed": [step["failed"] for step in steps],
            "completed": [step["completed"] for step in steps],
        },
        "waits": {name: [step["wait_p95"][name] for step in steps] for name in CLASSES},
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
