"""Queues: how deep, how old, how fast; pausing them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from fusion.dashboard.page import Action, Page, View


def queues(view: View) -> dict[str, Any]:
    """All queues, a page of them."""
    return {"found": view.get("/queues", offset=view.args.get("offset", 0), limit=100)}


def pause(view: View) -> str:
    """Let no job of it start."""
    name = view.params["name"]
    view.post(f"/queues/{quote(name, safe='')}/pause", {"reason": view.field("reason")} if view.field("reason") else {})
    return f"Queue {name} is paused: none of its jobs starts until it is resumed."


def resume(view: View) -> str:
    """Start its jobs again."""
    name = view.params["name"]
    view.post(f"/queues/{quote(name, safe='')}/resume")
    return f"Queue {name} is resumed."


PAGES = (
    Page("/queues", "queues.html", "Queues", queues, nav="Queues"),
    Action("/queues/{name}/pause", pause, "admin"),
    Action("/queues/{name}/resume", resume, "admin"),
)
