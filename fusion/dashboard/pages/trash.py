"""Deleted jobs, and their restoring."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from fusion.dashboard.chosen import chosen, each
from fusion.dashboard.filters import plural
from fusion.dashboard.page import Page, PageAction, PageRequest, Said

_PAGE = 100
#: The most that the trash holds; the page warns near this limit.
MOST, MOST_BYTES = 10_000, 64 * 1024 * 1024


def trash(view: PageRequest) -> dict[str, Any]:
    """Load a page of deleted jobs, the most recently deleted first."""
    found = view.get("/trash", offset=view.args.get("offset", 0), limit=_PAGE)
    full = found["total"] is not None and (found["total"] >= MOST or found["bytes"] >= 0.98 * MOST_BYTES)
    return {"found": found, "limit": _PAGE, "full": full}


def restore(view: PageRequest) -> str | Said:
    """Restore the selected jobs."""
    return each(chosen(view), "restored", lambda job: view.post(f"/trash/{quote(job, safe='')}/restore"))


def empty(view: PageRequest) -> str:
    """Empty the trash."""
    purged = view.post("/trash/empty")["purged"]
    return f"The trash is empty: {plural(purged, 'job')} cannot be restored any more."


PAGES = (
    Page("/trash", "trash.html", "Trash", trash, nav="Trash", group="System"),
    PageAction("/trash/empty", empty, "admin", fleet=True),
    PageAction("/trash/restore", restore),
)
