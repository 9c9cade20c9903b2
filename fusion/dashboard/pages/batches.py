"""Batches: their progress, members and following jobs."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from fusion.dashboard.filters import term
from fusion.dashboard.graphs import KINDS, Bars, batch_spots, drawing, sums
from fusion.dashboard.page import Page, PageAction, PageRequest
from fusion.dashboard.titles import named
from fusion.kernel.states import ENDED
from fusion.views.batch import BatchView

_PAGE, _MEMBERS = 100, 100
#: Failed members, which stand before all others.
_FAILED = 20
#: The outcomes of members, in the order of the bar.
STATES = (*reversed(ENDED), "deleted", "open")
LIGHTS = {"success": "good", "complete": "bad", "canceled": "warn"}
#: Seconds for which a graph is cached.
_GRAPH_KEPT = 5.0


def batches(view: PageRequest) -> dict[str, Any]:
    """Load a page of batches, the newest first."""
    return {"found": view.get("/batches", offset=view.args.get("offset", 0), limit=_PAGE), "limit": _PAGE, "lights": LIGHTS}


def batch(view: PageRequest) -> dict[str, Any]:
    """Load one batch and a page of its members."""
    one = view.get(f"/batches/{_id(view)}", offset=view.args.get("offset", 0), limit=_MEMBERS)
    failed = view.get("/jobs", query=f"{term('batch', one['id'])} state:failed", limit=_FAILED)["jobs"] if one["failed"] else []
    ids = [member["id"] for member in one["members"] if not member["id"].startswith("#")]
    states = [(state, one[state]) for state in STATES if one[state]]
    graph = view.get(f"/batches/{_id(view)}/graph", kept=_GRAPH_KEPT)
    placed = batch_spots(graph)
    roles = {node["id"]: node["role"] for node in graph["nodes"]}
    return {
        "one": one,
        "limit": _MEMBERS,
        "states": states,
        "lights": LIGHTS,
        "kinds": KINDS,
        "failed": failed,
        "named": named(view, [one["on_complete"], one["on_success"], *ids]),
        "graph": graph,
        "drawn_graph": drawing(view, placed, roles=roles, batch=one["id"]) if placed else "",
        "groups": sums(placed) if graph["groups"] else [],
        "bars": Bars(graph["nodes"]),
        "nodes": {node["id"]: node for node in graph["nodes"]},
    }


def cancel(view: PageRequest) -> str:
    """Cancel the batch: it accepts no more jobs, and the jobs in it are canceled."""
    told = view.post(f"/batches/{_id(view)}/cancel")
    running = told["running"]
    left = f"; {running:,} that {'run' if running != 1 else 'runs'} will not be tried again" if running else ""
    return f"Batch {told['id']} is canceled with {told['canceled']:,} of its jobs{left}."


def _id(view: PageRequest) -> str:
    return quote(view.params["id"], safe="")


PAGES = (
    Page("/batches", "batches.html", "Batches", batches, nav="Batches", fleet=True),
    Page("/batches/{id}", "batch.html", "Batch", batch, fleet=True, shows=BatchView),
    PageAction("/batches/{id}/cancel", cancel, fleet=True),
)
