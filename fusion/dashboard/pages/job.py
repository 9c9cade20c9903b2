"""One job: its details, its graph and its actions."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import quote

from fusion.dashboard.graphs import Bars, drawing, knots, sums
from fusion.dashboard.json_tree import DiffLine, difference, pretty
from fusion.dashboard.page import Again, Page, PageAction, PageRequest, Said
from fusion.dashboard.pages.jobs import act
from fusion.dashboard.titles import failed_first, named
from fusion.dashboard.words import VERBS
from fusion.jobs.layers import MOST, spots
from fusion.kernel.states import ENDED
from fusion.views.job_sheet import JobView
from fusion.web.exchange import HttpError

#: Most jobs of its graph that are read, and that are listed; most of a page of the trash.
_GRAPH, _LISTED, _TRASH = 1000, 100, 1000
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
    placed = spots(knots(graph["nodes"])) if graph else []
    nodes = sorted(failed_first(graph["nodes"][:_LISTED]), key=lambda one: one["level"]) if graph else []
    unique = found["unique"] or {}
    kin = [unique.get("holder"), found["copied_from"], found["replaces"], found["replaced_by"], *found["copied_to"]]
    return {
        "job": found,
        "graph": graph and {**graph, "nodes": nodes, "total": len(graph["nodes"])},
        "groups": sums(placed) if graph and len(graph["nodes"]) > MOST else [],
        "drawn_graph": drawing(view, placed, found["id"]) if graph else "",
        "bars": Bars(nodes),
        "functions": {one["id"]: one for one in nodes},
        "named": named(view, [*kin, *(one["id"] for one in nodes)]),
        "verbs": [verb for verb in VERBS.values() if found["status"] in verb.states and view.may(verb.scope)],
        "can_copy": found["status"] in ENDED and view.may("operate"),
        "next": what_next(found),
        "awaited": found["status"] != "finished" and found["children"]["total"],
        "attempts": attempts(found),
        "differs": differs(view, found),
    }


def differs(view: PageRequest, job: Mapping[str, Any]) -> list[DiffLine] | None:
    """Return the lines in which an edited copy differs from its original; None if it is no copy, or the original is gone. Both are masked."""
    if not job["copied_from"] or "arguments" not in job:
        return None
    try:
        before = view.get(f"/jobs/{quote(job['copied_from'], safe='')}", include="arguments", kept=_GRAPH_KEPT)
    except HttpError as error:
        if error.status != 404:
            raise
        return None
    return difference(*(_described(one["arguments"], one["queue"], one["priority"]) for one in (before, job)))


def _described(call: str | None, queue: str, priority: object) -> str:
    """Return what an edited copy may change, as text."""
    return f"{pretty(call)}\nqueue: {queue}\npriority: {priority}"


def _path(view: PageRequest) -> str:
    return f"/jobs/{quote(view.params['id'], safe='')}"


class Next(NamedTuple):
    """The next step of a job, and when it comes, if that is known."""

    text: str
    at: str | None = None


def what_next(job: Mapping[str, Any]) -> list[Next]:
    """Return what happens next to a job by itself, the first first."""
    status, retry, times, run = job["status"], job["retry"], job["times"], job["run"] or {}
    found = []
    if status == "scheduled":
        found.append(
            Next("It is tried again", retry["next_at"]) if retry["next_at"] else Next("It goes to its queue", job["scheduled_at"])
        )
    if status == "started" and run and not run["worker_alive"]:
        found.append(Next("Its worker is not heard of: others give it back to its queue, or fail it if it was lost too often"))
    elif status == "started":
        if run.get("timeout") and run["since"]:
            found.append(Next("It is killed if it still runs", _later(run["since"], run["timeout"])))
        if run.get("told"):
            found.append(Next("It was told to end, and is not tried again"))
        elif retry["left"]:
            found.append(Next("If it fails with an error of its policy, it is tried again"))
        else:
            found.append(Next("If it fails, it stays among the failed jobs until a user requeues it"))
    if status in ("queued", "blocked", "deferred", "scheduled") and times["expires_at"]:
        found.append(Next("It expires if it has not started", times["expires_at"]))
    if status == "failed":
        found.append(Next("Nothing by itself: requeue it once its cause is mended, or enqueue an edited copy"))
    if status in ENDED and times["kept_until"]:
        found.append(Next("Its record is removed", times["kept_until"]))
    return found


def _later(at: str, seconds: float) -> str:
    return (datetime.fromisoformat(at) + timedelta(seconds=seconds)).isoformat()


def attempts(job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the runs of a job, the first first, each with whether its error is that of the one before. The last one is that which runs or
    finished."""
    runs = [
        {**one, "told": "; ".join(filter(None, [one["ending"], one.get("error", one["error_class"])]))} for one in job["tries"]
    ]
    if runs and job["started_at"] and job["status"] in ("started", "finished"):
        took = None
        if job["status"] == "finished" and job["ended_at"]:
            took = (datetime.fromisoformat(job["ended_at"]) - datetime.fromisoformat(job["started_at"])).total_seconds()
        runs.append(
            {"outcome": job["status"], "started_at": job["started_at"], "seconds": took, "worker": job["worker"], "told": ""}
        )
    before = [None, *(one["told"] for one in runs)]
    return [{**one, "again": bool(one["told"]) and one["told"] == last} for one, last in zip(runs, before, strict=False)]


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


def reveal(view: PageRequest) -> Again:
    """Show the masked values as the answer to the form, and nowhere else. The audit has an entry of it before."""
    found = view.post(f"{_path(view)}/reveal")
    said = Said("The audit has an entry that you saw these values.")
    return Again(REVEALED, {"revealed": found, "still": True}, said, status=200, secret=True)


def copying(view: PageRequest) -> dict[str, Any]:
    """Load the form for an edited copy."""
    found = view.get(_path(view), include="arguments")
    try:
        known = json.loads(found["arguments"] or "")
        shown = {name: json.dumps(known[name], indent=2, ensure_ascii=False) for name in ("args", "kwargs")}
    except (ValueError, KeyError, TypeError, RecursionError):
        shown = {"args": "", "kwargs": ""}
    entered = {**shown, "queue": found["original_queue"] or found["queue"], "priority": str(found["priority"])}
    return {"job": found, "still": True, "entered": entered, "once": secrets.token_hex(8), "difference": []}


def copy(view: PageRequest) -> Said | Again:
    """Enqueue the edited copy, or show what would differ. Values that were left as shown, masked ones too, keep the original's value."""
    if view.field("look"):
        return _looked_at(view)
    try:
        made = view.post(f"{_path(view)}/copy", _edit(view, copying(view)["entered"]))
    except HttpError as error:
        if error.status not in (400, 403, 404, 409, 413, 422, 429):
            raise
        return Again(COPY, {**copying(view), "entered": _entered(view)}, Said(str(error), wrong=True))
    return Said(f"This is the copy; it was put into queue {made['queue']}.", to=f"/jobs/{quote(made['job_id'], safe='')}")


def _entered(view: PageRequest) -> dict[str, str]:
    return {name: view.field(name) for name in ("args", "kwargs", "queue", "priority")}


def _looked_at(view: PageRequest) -> Again:
    """Show the form again with the lines that differ from the original."""
    context, entered = copying(view), _entered(view)
    texts = [
        "\n".join(
            [pretty(one["args"].strip()), pretty(one["kwargs"].strip()), f"queue: {one['queue']}", f"priority: {one['priority']}"]
        )
        for one in (context["entered"], entered)
    ]
    lines = difference(*texts)
    said = "Nothing is enqueued yet." if lines else "It is too long to be compared." if lines is None else "Nothing differs."
    return Again(COPY, {**context, "entered": entered, "difference": lines or []}, Said(said), status=200)


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


#: No page of a route: it is only shown as the answer to a form.
REVEALED = Page("/jobs/{id}/reveal", "job_revealed.html", "Masked values", job, scope="admin")
COPY = Page("/jobs/{id}/copy", "job_copy.html", "Edited copy", copying, scope="operate")
PAGES: tuple[Page | PageAction, ...] = (
    Page("/jobs/{id}", "job.html", "Job", job, shows=JobView, noun="job"),
    COPY,
    *(PageAction(f"/jobs/{{id}}/{name}", _doing(name), VERBS[name].scope) for name in ("requeue", "cancel", "stop", "delete")),
    PageAction("/jobs/{id}/restore", restore),
    PageAction("/jobs/{id}/reveal", reveal, "admin"),
    PageAction("/jobs/{id}/copy", copy),
)
