"""Jobs that wait for a time: the soonest first, and why."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from fusion.dashboard.chosen import chosen, each
from fusion.dashboard.page import Page, PageAction, PageRequest, Said

_PAGE = 100


def scheduled(view: PageRequest) -> dict[str, Any]:
    """Load a page of scheduled jobs. A viewer who is restricted to some queues gets the result of a search, without the reasons."""
    offset = view.args.get("offset", 0)
    if view.sees_all:
        return {"found": view.get("/scheduled", offset=offset, limit=_PAGE), "limit": _PAGE}
    page = view.get("/jobs", query="state:scheduled", limit=_PAGE, after=view.args.get("after"))
    jobs = [{**job, "due_at": job["scheduled_at"], "why": None, "reason": None} for job in page["jobs"]]
    return {"found": {"jobs": jobs, "after": page["after"], "note": page["note"]}, "limit": _PAGE}


def cancel(view: PageRequest) -> str | Said:
    """Cancel the selected jobs."""
    return each(chosen(view), "canceled", lambda job: view.post(f"/jobs/{quote(job, safe='')}/cancel"))


def run(view: PageRequest) -> str | Said:
    """Reschedule the selected jobs to now."""
    return each(chosen(view), "due now", lambda job: view.post(f"/jobs/{quote(job, safe='')}/reschedule", {"when": 0}))


def move(view: PageRequest) -> str | Said:
    """Reschedule the selected jobs to another time."""
    when = view.field("when").strip()
    if not when:
        return Said("Enter when they should run: like 10m, or 2026-11-24T09:00:00+01:00.", wrong=True)
    return each(
        chosen(view), f"moved to {when}", lambda job: view.post(f"/jobs/{quote(job, safe='')}/reschedule", {"when": when})
    )


PAGES = (
    Page("/scheduled", "scheduled.html", "Scheduled", scheduled, nav="Scheduled", group="Plan"),
    PageAction("/scheduled/move", move),
    PageAction("/scheduled/cancel", cancel),
    PageAction("/scheduled/run", run),
)
