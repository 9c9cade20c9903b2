"""Queues: their length, age and rates; pause and empty them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import quote

from fusion.dashboard.page import Page, PageAction, PageRequest, Said
from fusion.dashboard.pages.jobs import term
from fusion.dashboard.pages.overview import CLASSES, times_of
from fusion.views.queue import QueueView

#: Queues of one page.
_PAGE = 100
#: The time ranges on a queue's page, and the seconds for which such a history is cached.
SPANS = {"1h": 10.0, "6h": 30.0, "1d": 60.0, "7d": 120.0, "30d": 120.0}
#: States for which a queue's page has a link to the jobs.
_STATES = ("queued", "started", "failed", "blocked", "scheduled", "finished")
#: Most points of a chart's line.
_POINTS = 180
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
    now, past = view.get(path, since="1m", kept=1.5), view.get(path, since=span, kept=SPANS[span])
    rows, step = past["history"], 60 if span in ("1h", "6h", "1d") else 3600
    return {
        "one": now,
        "name": now["name"],
        "span": span,
        "spans": list(SPANS),
        "queries": [(state, f"{term('queue', now['name'])} state:{state}") for state in _STATES],
        "known": bool(rows),
        "depths": {name: spread(rows, step, partial(_depth, name), max) for name in CLASSES},
        "ended": {
            what: spread(whole(rows, step, time.time()), step, partial(_count, what), sum) for what in ("failed", "completed")
        },
        "waited": times_of(past["seconds"], "wait"),
        "ran": times_of(past["seconds"], "run"),
    }


def whole(rows: Sequence[Mapping[str, Any]], step: int, now: float) -> Sequence[Mapping[str, Any]]:
    """Return the rows without the current, incomplete step, unless it is the only one."""
    begun = len(rows) > 2 and datetime.fromisoformat(rows[-1]["at"]).timestamp() + step > now
    return rows[:-1] if begun else rows


def spread(
    rows: Sequence[Mapping[str, Any]],
    step: int,
    value: Callable[[Mapping[str, Any]], float],
    joined: Callable[[list[float]], float],
) -> list[float | None]:
    """Return a value for each step from the first to the last, 0 for a missing step. Long series are reduced to `_POINTS` values."""
    at = [int(datetime.fromisoformat(row["at"]).timestamp()) // step for row in rows]
    if not at:
        return []
    found = [0.0] * (at[-1] - at[0] + 1)
    for number, row in zip(at, rows, strict=True):
        found[number - at[0]] = value(row)
    size = -(-len(found) // _POINTS)
    return [joined(found[start : start + size]) for start in range(0, len(found), size)]


def _depth(name: str, row: Mapping[str, Any]) -> float:
    return float(row.get("waiting", {}).get(name, {}).get("depth", 0))


def _count(what: str, row: Mapping[str, Any]) -> float:
    return float(row.get(what, 0))


def pause(view: PageRequest) -> str:
    """Pause the queue."""
    name = view.params["name"]
    wish = {field: view.field(field).strip() for field in ("reason", "duration")}
    view.post(f"/queues/{_path(name)}/pause", {field: value for field, value in wish.items() if value})
    until = f" for {wish['duration']}" if wish["duration"] else " until it is resumed"
    return f"Queue {name} is paused: none of its jobs starts{until}."


def resume(view: PageRequest) -> str:
    """Resume the queue."""
    name = view.params["name"]
    view.post(f"/queues/{_path(name)}/resume")
    return f"Queue {name} is resumed."


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
