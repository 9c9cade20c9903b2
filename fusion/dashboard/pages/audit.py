"""The audit: changes, their authors and outcomes."""

from __future__ import annotations

from typing import Any

from fusion.dashboard.page import Page, PageRequest

_PAGE = 100
#: The form's values of `since`, and their labels.
SINCE = (("", "Any time"), ("1h", "The last hour"), ("1d", "The last day"), ("7d", "The last week"), ("30d", "The last 30 days"))
_ASKED = ("who", "action", "since")


def audit(view: PageRequest) -> dict[str, Any]:
    """Load a page of changes, the newest first."""
    asked = {name: view.args.get(name, "").strip() for name in _ASKED}
    given: dict[str, Any] = {name: value for name, value in asked.items() if value}
    since = SINCE if asked["since"] in dict(SINCE) else (*SINCE, (asked["since"], f"The last {asked['since']}"))
    found = view.get("/audit", limit=_PAGE, after=view.args.get("after"), **given)
    return {"found": found, "asked": asked, "since": since}


PAGES = (Page("/audit", "audit.html", "Audit", audit, nav="Audit", group="System"),)
