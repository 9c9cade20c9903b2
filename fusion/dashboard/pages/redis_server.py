"""Redis itself: memory, persistence, latency."""

from __future__ import annotations

from typing import Any

from fusion.dashboard.page import Page, PageRequest
from fusion.dashboard.pages import findings

#: Seconds for which the data are cached: a read takes some tens of milliseconds.
_KEPT = 5.0


def redis(view: PageRequest) -> dict[str, Any]:
    """Load the server, and the findings of `doctor` about it."""
    found = view.get("/redis", kept=_KEPT)
    most, used = found["memory"]["max"], found["memory"]["used"]
    return {
        "one": found,
        "findings": findings.shown(found["findings"]),
        "full": 100 * used / most if most and used is not None else None,
        "safe": found["memory"]["policy"] in ("", "noeviction"),
        "in_all": sum(row["seconds"] for row in found["commands"]),
    }


PAGES = (Page("/redis", "redis.html", "Redis", redis, nav="Redis", group="System", fleet=True),)
