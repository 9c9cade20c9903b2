"""The relay: the progress of sinks, refused events, and callbacks to URLs."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from fusion.dashboard.chosen import TOLD, chosen, refusals
from fusion.dashboard.filters import plural
from fusion.dashboard.page import Page, PageAction, PageRequest, Said
from fusion.dashboard.titles import named
from fusion.store.read.callback_inspector import STATUSES

_PAGE = 100
_LIGHTS = {"delivering": "good", "failing": "warn", "open": "bad", "unserved": "bad"}
_STATUSES = {"delivered": "good", "failed": "bad", "retrying": "warn"}


def relay(view: PageRequest) -> dict[str, Any]:
    """Load sinks and relays, and a page of callbacks, of one status if chosen."""
    sinks, status = view.ask("/sinks", kept=2.0), view.args.get("status")
    status = status if status in STATUSES else None
    found = view.get("/callbacks", status=status, offset=view.args.get("offset", 0), limit=_PAGE, kept=2.0)
    return {
        "events": sinks,
        "lights": _LIGHTS,
        "states": _STATUSES,
        "found": found,
        "limit": _PAGE,
        "chosen": status,
        "statuses": STATUSES,
        "named": named(view, [one["job_id"] for one in found["callbacks"]]),
    }


def retry(view: PageRequest) -> str | Said:
    """Retry the selected callbacks."""
    ids = chosen(view)
    if not ids:
        return Said("Select the callbacks to try again first.", wrong=True)
    refused = refusals(ids, lambda delivery: view.post(f"/callbacks/{quote(delivery, safe='')}/retry"))
    told = f"{plural(len(ids) - len(refused), 'callback is', 'callbacks are')} tried again."
    reasons = "; ".join(f"{delivery}: {why}" for delivery, why in list(refused.items())[:TOLD])
    return Said(f"{told} {len(refused)} not: {reasons}", wrong=True) if refused else told


PAGES = (
    Page("/relay", "relay.html", "Relay", relay, nav="Relay", group="System"),
    PageAction("/relay/retry", retry),
)
