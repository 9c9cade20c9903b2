"""Bulk operations: a preview, the start, and the progress."""

from __future__ import annotations

import secrets
from typing import Any
from urllib.parse import quote

from fusion.dashboard.filters import plural
from fusion.dashboard.page import Page, PageAction, PageRequest, Said
from fusion.dashboard.titles import named
from fusion.dashboard.words import VERBS, Verb, subject
from fusion.views.operation import OperationView
from fusion.web.exchange import HttpError

#: Operations of one page.
_PAGE = 50
#: The reason in a preview of an operation, before the viewer has entered one.
_UNSAID = {"reason": "not said yet", "priority": "moderate"}


def operations(view: PageRequest) -> dict[str, Any]:
    """Load a page of operations: running ones, then the most recently ended."""
    return {"found": view.get("/operations", offset=view.args.get("offset", 0), limit=_PAGE), "limit": _PAGE, "verbs": VERBS}


def intended(view: PageRequest) -> dict[str, Any]:
    """Load the preview of an operation."""
    query, verb = view.args.get("q", ""), VERBS.get(view.args.get("action", ""))
    shown = {
        "still": True,
        "query": query,
        "verb": verb,
        "verbs": [one for one in VERBS.values() if view.may(one.scope)],
        "would": None,
        "wrong": "",
        "subject": "",
        "once": secrets.token_hex(8),
    }
    if verb is None:
        return shown
    try:
        would = view.post("/operations", {"action": verb.name, "query": query, "dry_run": True} | _needs(verb, _UNSAID))
    except HttpError as error:
        if error.status != 422:
            raise
        return {**shown, "wrong": str(error)}
    names = named(view, [one["id"] for one in would["examples"]])
    return {**shown, "would": would, "named": names, "subject": subject(would["by"], would["complete"], would["matched"])}


def begin(view: PageRequest) -> Said:
    """Start the operation, and go to the page with its progress."""
    verb = VERBS.get(view.field("action"))
    if verb is None:
        return Said("Choose what to do.", wrong=True)
    body = {"action": verb.name, "query": view.field("q")} | _needs(verb, {verb.asks: view.field(verb.asks)} if verb.asks else {})
    if verb.name == "delete" and view.field("purge"):
        body["purge"] = True
    begun = view.post("/operations", body)
    return Said(f"{verb.doing} {plural(begun['matched'], 'job')}.", to=_path(begun["id"]))


def _needs(verb: Verb, values: dict[str, str]) -> dict[str, Any]:
    return {verb.asks: values.get(verb.asks, "")} if verb.asks else {}


def operation(view: PageRequest) -> dict[str, Any]:
    """Load one operation: its progress, what it left out, and why."""
    found = view.get(_path(view.params["id"]))
    verb = VERBS.get(found["action"])
    return {
        "operation": found,
        "verb": verb,
        "named": named(view, [one["example"] for one in found["why"].values()]),
        "came": found["done"] + found["skipped"] + found["refused"],
        "can_cancel": found["status"] == "running" and view.may(verb.scope if verb else "operate"),
    }


def cancel(view: PageRequest) -> str:
    """Cancel the operation: it changes no further job."""
    view.post(f"{_path(view.params['id'])}/cancel")
    return "It is canceled: it changes no further job. What is done stays done."


def _path(operation_id: str) -> str:
    return f"/operations/{quote(operation_id, safe='')}"


PAGES: tuple[Page | PageAction, ...] = (
    Page("/operations", "operations.html", "Bulk changes", operations, nav="Bulk changes", group="Plan"),
    Page("/operations/new", "operation_new.html", "New bulk change", intended, scope="operate"),
    Page("/operations/{id}", "operation.html", "Bulk change", operation, shows=OperationView, noun="operation"),
    PageAction("/operations", begin),
    PageAction("/operations/{id}/cancel", cancel),
)
