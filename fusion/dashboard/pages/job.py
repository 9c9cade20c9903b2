"""One job: its details, its graph and its actions."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from fusion.dashboard.page import Again, Page, PageAction, PageRequest, Said
from fusion.dashboard.pages.jobs import act
from fusion.dashboard.titles import failed_first, named
from fusion.dashboard.words import VERBS
from fusion.kernel.states import ENDED
from fusion.views.job_sheet import JobView
from fusion.web.exchange import HttpError

#: Most jobs of its graph, and of a page of the trash.
_GRAPH, _TRASH = 100, 1000
#: Seconds for which a graph is cached.
_GRAPH_KEPT = 5.0


def job(view: PageRequest) -> dict[str, Any]:
    """Load all details of one job. A missing job may be in the trash."""
    path = _path(view)
    try:
        found = view.get(path, include="events,arguments,trace,log" if view.knows else "events")
    except HttpError as error:
        if error.status != 404:
            raise
        trash = view.get("/trash", limit=_TRASH)["jobs"]
        deleted = next((one for one in trash if one["id"] == view.params["id"]), None)
        return {"status": 404, "job": None, "wrong": str(error), "deleted": deleted}
    related = found["parents"]["total"] or found["children"]["total"]
    graph = view.get(f"{path}/tree", limit=_GRAPH, kept=_GRAPH_KEPT) if related else None
    nodes = sorted(failed_first(graph["nodes"]), key=lambda one: one["level"]) if graph else []
    unique = found["unique"] or {}
    kin = [unique.get("holder"), found["copied_from"], found["replaces"], found["replaced_by"], *found["copied_to"]]
    return {
        "job": found,
        "graph": graph and {**graph, "nodes": nodes},
        "functions": {one["id"]: one for one in nodes},
        "named": named(view, [*kin, *(one["id"] for one in nodes)]),
        "verbs": [verb for verb in VERBS.values() if found["status"] in verb.states and view.may(verb.scope)],
        "can_copy": found["status"] in ENDED and view.may("operate"),
        "pretty": pretty,
    }


def _path(view: PageRequest) -> str:
    return f"/jobs/{quote(view.params['id'], safe='')}"


def pretty(value: str | None) -> str:
    """Return JSON on several lines. Other text, such as JSON that was cut, is returned unchanged."""
    try:
        return json.dumps(json.loads(value or ""), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return value or ""


#: The result of each action for a waiting job, and for a running one.
_SAID = {
    ("requeue", False): "was put back into its queue",
    ("cancel", False): "is canceled",
    ("cancel", True): "runs to its end and is not tried again",
    ("stop", False): "is stopped",
    ("stop", True): "got the request to stop",
    ("delete", False): "was deleted",
}


def _doing(name: str) -> Callable[[PageRequest], Said]:
    def do(view: PageRequest) -> Said:
        job_id = view.params["id"]
        pending = act(view, name, job_id).get("pending")
        return Said(f"Job {job_id} {_SAID[name, bool(pending)]}.", to=_path(view), undo=(name, (job_id,)))

    return do


def restore(view: PageRequest) -> Said:
    """Restore the job from the trash."""
    view.post(f"/trash/{quote(view.params['id'], safe='')}/restore")
    return Said(f"Job {view.params['id']} is back.", to=_path(view))


def copying(view: PageRequest) -> dict[str, Any]:
    """Load the form for an edited copy."""
    found = view.get(_path(view), include="arguments")
    try:
        known = json.loads(found["arguments"] or "")
        shown = {name: json.dumps(known[name], indent=2, ensure_ascii=False) for name in ("args", "kwargs")}
    except (ValueError, KeyError, TypeError, RecursionError):
        shown = {"args": "", "kwargs": ""}
    entered = {**shown, "queue": found["original_queue"] or found["queue"], "priority": str(found["priority"])}
    return {"job": found, "still": True, "entered": entered, "once": secrets.token_hex(8)}


def copy(view: PageRequest) -> Said | Again:
    """Enqueue the edited copy. Values that were left as shown, masked ones too, keep the original's value."""
    try:
        made = view.post(f"{_path(view)}/copy", _edit(view, copying(view)["entered"]))
    except HttpError as error:
        if error.status not in (400, 403, 404, 409, 413, 422, 429):
            raise
        entered = {name: view.field(name) for name in ("args", "kwargs", "queue", "priority")}
        return Again(COPY, {**copying(view), "entered": entered}, Said(str(error), wrong=True))
    return Said(f"This is the copy; it was put into queue {made['queue']}.", to=f"/jobs/{quote(made['job_id'], safe='')}")


def _edit(view: PageRequest, shown: Mapping[str, str]) -> dict[str, Any]:
    """Return the values that differ from those shown."""
    edit: dict[str, Any] = {}
    for name in ("args", "kwargs"):
        given = view.field(name).replace("\r\n", "\n").strip()
        if given and given != shown[name]:
            try:
                edit[name] = json.loads(given)
            except (ValueError, RecursionError) as error:
                raise HttpError(422, "invalid_value", f"{name} is not JSON: {error}", field=name) from None
    for name in ("queue", "priority"):
        given = view.field(name).strip()
        if given and given != shown[name]:
            edit[name] = int(given) if given.isdecimal() and given.isascii() and len(given) < 10 else given
    return edit


COPY = Page("/jobs/{id}/copy", "job_copy.html", "Edited copy", copying, scope="operate")
PAGES: tuple[Page | PageAction, ...] = (
    Page("/jobs/{id}", "job.html", "Job", job, shows=JobView, noun="job"),
    COPY,
    *(PageAction(f"/jobs/{{id}}/{name}", _doing(name), VERBS[name].scope) for name in ("requeue", "cancel", "stop", "delete")),
    PageAction("/jobs/{id}/restore", restore),
    PageAction("/jobs/{id}/copy", copy),
)
