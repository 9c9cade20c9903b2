"""Failed jobs grouped by error: the list of groups, and one group."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from fusion.dashboard.charts import Chart, Line
from fusion.dashboard.filters import plural, term
from fusion.dashboard.json_tree import pretty
from fusion.dashboard.page import Page, PageRequest
from fusion.dashboard.titles import named
from fusion.dashboard.words import VERBS, Verb
from fusion.views.failure import FailureGroupView
from fusion.web.exchange import HttpError

#: Groups of one page, and jobs of one group.
_GROUPS, _JOBS = 50, 25
#: Actions on a whole group.
_DONE = ("quarantine", "requeue", "delete")
#: The number of these actions beside each group of the list.
_OFFERED = 2
#: Seconds for which groups are cached. For a token for some queues, each failed job must be read to make them.
_KEPT = 2.0
#: Seconds of a step of a group's trend.
_QUARTER = 900


def failures(view: PageRequest) -> dict[str, Any]:
    """Load a page of groups, the one with the latest failure first."""
    found = view.get("/failures", offset=view.args.get("offset", 0), limit=_GROUPS, kept=_KEPT)
    return {
        "found": found,
        "named": named(view, [one["example"] for one in found["groups"]]),
        "limit": _GROUPS,
        "term": term,
        "verbs": _verbs(view)[:_OFFERED],
    }


def failure(view: PageRequest) -> dict[str, Any]:
    """Load one group: its trend, its example if the viewer may see it, and its jobs."""
    name = view.params["id"]
    group, query = view.get(f"/failures/{quote(name, safe='')}", limit=1, kept=_KEPT), term("group", name)
    return {
        "group": group,
        "trend": trend(group),
        "query": query,
        "term": term,
        "pretty": pretty,
        "example": _example(view, group["example"]),
        "found": view.get("/jobs", query=query, limit=_JOBS) if group["count"] else None,
        "verbs": _verbs(view) if group["count"] else [],
    }


def trend(group: Mapping[str, Any]) -> Chart:
    """Return the chart of the failures of a day."""
    last = int(time.time()) // _QUARTER * _QUARTER
    at = [last - _QUARTER * nth for nth in reversed(range(len(group["trend"])))]
    label = f"{plural(group['last_day'], 'failure')} in the last 24 hours, by quarters of an hour"
    return Chart(label, "in 15 minutes", at, _QUARTER, [Line("failed", "bad", group["trend"])])


def _verbs(view: PageRequest) -> list[Verb]:
    """Return the actions that the viewer may take on a group."""
    return [VERBS[verb] for verb in _DONE if view.may(VERBS[verb].scope)]


def _example(view: PageRequest, job_id: str | None) -> Any:
    """Return the newest job of a group; None if it is gone, or the viewer may not see it."""
    if job_id is None or not view.knows:
        return None
    try:
        return view.get(f"/jobs/{quote(job_id, safe='')}", include="arguments,trace", kept=5.0)
    except HttpError as error:
        if error.status != 404:
            raise
        return None


PAGES = (
    Page("/failures", "failures.html", "Failures", failures, nav="Failures"),
    Page("/failures/{id}", "failure.html", "Failure", failure, shows=FailureGroupView, noun="group"),
)
