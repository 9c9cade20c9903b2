"""Recurring jobs: their next ticks and last outcomes, and a run by hand."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

from fusion.dashboard.page import Page, PageAction, PageRequest, Said
from fusion.dashboard.titles import named
from fusion.kernel import states
from fusion.views.cron import CronEntryListedView

#: The light of each state of an entry; the light and the words of each decision; the meanings of the rules.
LIGHTS = {"active": "good", "paused": "warn", "waits": "warn", "ended": "none", "error": "bad"}
DECIDED = {
    "enqueued": ("good", "enqueued"),
    "manual": ("none", "by hand"),
    "missed": ("bad", "missed"),
    "overlap": ("warn", "left out, the last still ran"),
    "exists": ("none", "was enqueued already"),
    "taken": ("warn", "left out, its unique key was taken"),
}
MISFIRES = {"latest": "the latest runs", "all": "all run", "skip": "none runs"}
OVERLAPS = {"allow": "both run", "skip": "the new one is left out", "queue": "the new one waits"}
_WORDS = {"lights": LIGHTS, "states": states.LIGHTS, "decided": DECIDED, "misfires": MISFIRES, "overlaps": OVERLAPS}


def entries(view: PageRequest) -> dict[str, Any]:
    """Load all entries, and the live schedulers."""
    return {"found": view.get("/cron"), **_WORDS}


def entry(view: PageRequest) -> dict[str, Any]:
    """Load one entry: its next ticks and the outcomes of its last ones."""
    one = view.get(f"/cron/{_name(view)}", limit=50)
    plan = one["plan"] or {}
    bounds = {name: _iso(plan[bound]) for name, bound in (("starts", "start"), ("ends", "end")) if bound in plan}
    return {
        "one": one,
        "zone": plan.get("timezone"),
        "named": named(view, [was["job"] for was in one["decisions"]]),
        **bounds,
        **_WORDS,
    }


def run(view: PageRequest) -> str | Said:
    """Enqueue a job of the entry now."""
    told = view.post(f"/cron/{_name(view)}/run")
    return Said(f"Job {told['job_id']} of {told['id']} is enqueued; its times go on as planned.")


def pause(view: PageRequest) -> Said:
    """Pause the entry."""
    told = view.post(f"/cron/{_name(view)}/pause")
    text = f"Cron entry {told['id']} is paused: nothing is enqueued at its times until it is resumed."
    return Said(text, undo=("cron_pause", (told["id"],)))


def resume(view: PageRequest) -> Said:
    """Resume the entry."""
    told = view.post(f"/cron/{_name(view)}/resume")
    text = f"Cron entry {told['id']} is resumed; what was due meanwhile is not made up."
    return Said(text, undo=("cron_resume", (told["id"],)))


def remove(view: PageRequest) -> Said:
    """Remove the entry; its jobs stay."""
    told = view.post(f"/cron/{_name(view)}/remove")
    again = f" The scheduler of {told['declared_by']} brings it back when it starts." if told["declared_by"] else ""
    return Said(f"Cron entry {told['id']} is removed; its jobs stay.{again}", to="/cron")


def _iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()


def _name(view: PageRequest) -> str:
    return quote(view.params["name"], safe="")


PAGES = (
    Page("/cron", "cron.html", "Cron", entries, nav="Cron", group="Plan"),
    Page("/cron/{name}", "cron_entry.html", "Cron entry", entry, shows=CronEntryListedView),
    PageAction("/cron/{name}/run", run),
    PageAction("/cron/{name}/pause", pause, "admin"),
    PageAction("/cron/{name}/resume", resume, "admin"),
    PageAction("/cron/{name}/remove", remove, "admin"),
)
