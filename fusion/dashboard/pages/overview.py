"""The first page: how it is, why, and what to press."""

from __future__ import annotations

from typing import Any

from fusion.dashboard.page import Page, View


def overview(view: View) -> dict[str, Any]:
    """The verdict, the queues, what runs."""
    return {
        "info": view.ask("/info", kept=2.0),
        "queues": view.get("/queues", limit=100),
        "running": view.ask("/running"),
    }


PAGES = (Page("/", "overview.html", "Overview", overview, nav="Overview"),)
