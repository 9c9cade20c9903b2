"""Concurrency keys: the holders of their slots, waiting jobs, stuck keys."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from fusion.dashboard.filters import term
from fusion.dashboard.page import Page, PageAction, PageRequest, Said
from fusion.dashboard.titles import named
from fusion.views.limit import KeyView

_PAGE = 100
#: Holders of a key in the list.
_HOLDERS = 3
#: Most waiting jobs that are shown with a key.
_WAITING = 20


def limits(view: PageRequest) -> dict[str, Any]:
    """Load a page of the keys, the most recently used first; or of the stuck ones."""
    stuck = "1" if view.args.get("stuck") == "1" else None
    found = view.get("/keys", offset=view.args.get("offset", 0), limit=_PAGE, stuck=stuck)
    names = named(view, [held["job_id"] for one in found["keys"] for held in one["holders"][:_HOLDERS]])
    return {"found": found, "limit": _PAGE, "stuck": stuck, "named": names}


def limit(view: PageRequest) -> dict[str, Any]:
    """Load one key."""
    one = view.get(f"/keys/{_key(view)}/stats")
    query = term("key", one["key"])
    waiting = view.get("/jobs", query=f"state:blocked {query}", limit=_WAITING)["jobs"] if one["blocked_count"] else []
    counts = ((name.removeprefix("total_").replace("_", " "), count) for name, count in one.items() if name.startswith("total_"))
    return {
        "one": one,
        "totals": [(name, count) for name, count in counts if count],
        "query": query,
        "waiting": waiting,
        "named": named(view, [held["job_id"] for held in one["holders"]]),
    }


def pause(view: PageRequest) -> Said:
    """Pause the key."""
    duration, reason = view.field("duration").strip(), view.field("reason").strip()
    view.post(
        f"/keys/{_key(view)}/pause", {**({"duration": duration} if duration else {}), **({"reason": reason} if reason else {})}
    )
    key = view.params["key"]
    until = f"for {duration}" if duration else "until it is resumed"
    return Said(f"Key {key} is paused {until}: none of its jobs starts.", undo=("key_pause", (key,)))


def resume(view: PageRequest) -> Said:
    """Resume the key."""
    view.post(f"/keys/{_key(view)}/resume")
    return Said(f"Key {view.params['key']} is resumed.", undo=("key_resume", (view.params["key"],)))


def bound(view: PageRequest) -> str | Said:
    """Set how many jobs run at once and how many start in a time. For an empty field the jobs' own values apply."""
    most, rate = view.field("max_concurrent").strip(), view.field("rate").strip()
    if most and not (most.isascii() and most.isdigit() and len(most) < 10):
        return Said("At once: use a whole number, or leave it empty to apply the jobs' own limit.", wrong=True)
    view.post(f"/keys/{_key(view)}/limit", {"max_concurrent": int(most) if most else None, "rate": rate or None})
    told = [f"{int(most):,} at once" if most else "", rate and f"{rate} in a time"]
    return f"Key {view.params['key']}: {' and '.join(filter(None, told)) or 'it goes by what its jobs say'}."


def release(view: PageRequest) -> str:
    """Release the slot of a running job."""
    job = view.field("job_id")
    view.post(f"/keys/{_key(view)}/release", {"job_id": job})
    return f"Job {job} has no slot of {view.params['key']} any more; others may start, and it runs on."


def _key(view: PageRequest) -> str:
    return quote(view.params["key"], safe="")


#: A key may have a `/` in it: its actions stand under a path of their own.
PAGES = (
    Page("/limits", "limits.html", "Limits", limits, nav="Limits", group="Plan", fleet=True),
    Page("/limits/{key}", "limit.html", "Concurrency key", limit, fleet=True, shows=KeyView),
    PageAction("/limit/{key}/pause", pause, "admin", fleet=True),
    PageAction("/limit/{key}/resume", resume, "admin", fleet=True),
    PageAction("/limit/{key}/bound", bound, "admin", fleet=True),
    PageAction("/limit/{key}/release", release, "admin", fleet=True),
)
