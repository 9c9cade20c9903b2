"""Queues: their length, age and rates; pause and empty them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from fusion.dashboard.charts import Chart, Steps
from fusion.dashboard.filters import seconds, term
from fusion.dashboard.page import Page, PageAction, PageRequest, Said
from fusion.dashboard.pages.overview import CLASSES, SPANS, ended_of, times_of, waits_of
from fusion.views.queue import QueueView

#: Queues of one page.
_PAGE = 100
#: States for which a queue's page has a link to the jobs.
_STATES = ("queued", "started", "failed", "blocked", "scheduled", "finished")
#: Most calls for one press of "empty"; each takes some seconds at most.
_ROUNDS = 10


def queues(view: PageRequest) -> dict[str, Any]:
    """Load a page of queues, each with its length over the last hour."""
    found = view.get("/queues", offset=view.args.get("offset", 0), limit=_PAGE, since="1h", kept=2.0)
    return {"found": found, "limit": _PAGE}


def queue(view: PageRequest) -> dict[str, Any]:
    """Load one queue, and its history of `?since=`."""
    name, span = view.params["name"], view.args.get("since", "1h")
    span = span if span in SPANS else "1h"
    path = f"/queues/{_path(name)}"
    now, past = view.get(path, since="1m", kept=1.5), view.get(path, since=span, kept=SPANS[span][2])
    total, step, _ = SPANS[span]
    steps = Steps.of(past["history"], step, total, datetime.fromisoformat(past["last_updated"]).timestamp())
    return {
        "one": now,
        "name": now["name"],
        "span": span,
        "spans": list(SPANS),
        "queries": [(state, f"{term('queue', now['name'])} state:{state}") for state in _STATES],
        "known": bool(past["history"]),
        "charts": charts_of(steps, span),
        "empties": empties(now),
        "waited": times_of(past["seconds"], "wait"),
        "ran": times_of(past["seconds"], "run"),
    }


def charts_of(steps: Steps, span: str) -> list[tuple[str, Chart]]:
    """Return the charts of a queue with their headings: those of the fleet, for this queue alone."""
    depths = steps.by_class(lambda row, name: row["waiting"].get(name, {}).get("depth", 0), CLASSES)
    return [
        *ended_of(steps, span),
        ("Waiting", Chart(f"Jobs that waited, by priority, in the last {span}", "jobs", steps.at, steps.size, depths)),
        waits_of(steps, span, lambda row, name: row["wait_p95"].get(name)),
    ]


def empties(queue: Mapping[str, Any]) -> tuple[str, str]:
    """Return how long until a queue is empty, if jobs come and go as in the last minute: a value and its words. Words alone: it grows, or stays."""
    flow, depth = queue["per_minute"], queue["queue_length"]
    if not depth or flow is None:
        return ("", "")
    left = flow["went"] - flow["came"]
    if queue["paused"]:
        return ("", "it is paused: no job leaves it")
    if left > 0:
        return (seconds(depth / left * 60), f"until it is empty: {left:,.1f} a minute more go out than come in")
    return (f"+{-left:,.1f}", "a minute: more come in than go out") if left < 0 else ("", "as many come in as go out")


def pause(view: PageRequest) -> Said:
    """Pause the queue."""
    name = view.params["name"]
    wish = {field: view.field(field).strip() for field in ("reason", "duration")}
    view.post(f"/queues/{_path(name)}/pause", {field: value for field, value in wish.items() if value})
    until = f" for {wish['duration']}" if wish["duration"] else " until it is resumed"
    return Said(f"Queue {name} is paused: none of its jobs starts{until}.", undo=("pause", (name,)))


def resume(view: PageRequest) -> Said:
    """Resume the queue."""
    name = view.params["name"]
    view.post(f"/queues/{_path(name)}/resume")
    return Said(f"Queue {name} is resumed.", undo=("resume", (name,)))


def empty(view: PageRequest) -> str | Said:
    """Move all waiting jobs of the queue to the trash."""
    name, deleted = view.params["name"], 0
    for _ in range(_ROUNDS):
        told = view.post(f"/queues/{_path(name)}/empty")
        deleted += told["deleted"]
        if not told["more"]:
            waited = "job that waited is" if deleted == 1 else "jobs that waited are"
            return f"Queue {name}: {deleted:,} {waited} deleted. The trash keeps {'it' if deleted == 1 else 'them'} for an hour."
    return Said(f"Queue {name}: {deleted:,} jobs are deleted, and some are left. Press it again.", wrong=True)


def _path(name: str) -> str:
    return quote(name, safe="")


PAGES = (
    Page("/queues", "queues.html", "Queues", queues, nav="Queues"),
    Page("/queues/{name}", "queue.html", "Queue", queue, shows=QueueView),
    PageAction("/queues/{name}/pause", pause, "admin"),
    PageAction("/queues/{name}/resume", resume, "admin"),
    PageAction("/queues/{name}/empty", empty, "admin"),
)
