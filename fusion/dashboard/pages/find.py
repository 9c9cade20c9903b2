"""Whatever has this name: a job, a queue, a task, a cron entry, a worker, a page. The palette of the script shows the same."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import quote

from fusion.dashboard.page import Page, PageRequest
from fusion.dashboard.titles import named

#: Most names that are read of each kind, and most hits of each.
_NAMES, _HITS = 200, 6
#: Seconds for which names are cached.
_KEPT = 10.0


class Hit(NamedTuple):
    """Something that was found: its kind, its name, what else is known of it, its path."""

    kind: str
    name: str
    about: str
    path: str


def find(view: PageRequest) -> dict[str, Any]:
    """Load what has a name like that of `?q=`."""
    query = view.args.get("q", "").strip()[:200]
    return {"query": query, "hits": hits(view, query) if query else []}


def hits(view: PageRequest, query: str) -> list[Hit]:
    """Return the job of this id, and the things whose names contain the text, a few of each kind."""
    found = [
        Hit("job", job_id, str(one["function"] or ""), _path("jobs", job_id)) for job_id, one in named(view, [query]).items()
    ]
    kinds = [
        ("queue", "queues", [one["name"] for one in view.get("/queues", limit=_NAMES, kept=_KEPT)["queues"]]),
        ("task", "tasks", [one["function"] for one in _tasks(view)]),
        ("cron entry", "cron", [one["id"] for one in (view.ask("/cron", kept=_KEPT) or {"entries": []})["entries"]]),
        ("worker", "workers", [one["name"] for one in view.get("/workers", limit=_NAMES, kept=_KEPT)["workers"]]),
    ]
    for kind, noun, names in kinds:
        near = sorted((name for name in names if query.casefold() in name.casefold()), key=lambda name: (len(name), name))
        found += [Hit(kind, name, "", _path(noun, name)) for name in near[:_HITS]]
    return found


def _tasks(view: PageRequest) -> Any:
    found = view.ask("/functions", limit=_NAMES, kept=60.0) if view.sees_all else None
    return found["functions"] if found else []


def _path(noun: str, name: str) -> str:
    return f"/{noun}/{quote(name, safe='')}"


PAGES = (Page("/find", "find.html", "Find", find),)
