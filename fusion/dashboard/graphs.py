"""Graphs of jobs, drawn here as SVG: in layers from left to right, and bars of what they waited and ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from fusion.dashboard.filters import seconds, term, text
from fusion.dashboard.page import PageRequest
from fusion.jobs.layers import Knot, Spot, spots
from fusion.kernel.states import LIGHTS

#: The size of a box, and of a box with the room around it; characters of a function's name that it has room for.
_WIDE, _HIGH, _STEP_X, _STEP_Y, _NAME = 170, 40, 230, 54, 22
#: The width of the bars of a graph.
_BAR = 160
#: What is worst: of several jobs in a box it gives the colour. The states of batches stand among those of jobs.
_WORST = (
    *("failed", "complete", "stopped", "canceled", "blocked", "started", "running", "open", "deferred", "scheduled", "queued"),
    *("gone", "deleted", "finished", "success"),
)
#: Colours of states: of those that have a light, of what runs, and else `quiet`, for what is yet to run.
KINDS = {
    **LIGHTS,
    "deleted": "warn",
    "complete": "bad",
    "success": "good",
    **dict.fromkeys(("started", "running", "open"), "way"),
}
#: When a job follows a batch.
_ROLES = {"on_complete": "when all ended", "on_success": "when all finished"}


def knots(nodes: Sequence[Mapping[str, Any]]) -> list[Knot]:
    """Return the jobs of a graph of the API."""
    return [
        Knot(one["id"], one["function"] or "?", one["status"], {each["id"]: each["on_failure"] for each in one["parents"]})
        for one in nodes
    ]


def batch_spots(graph: Mapping[str, Any]) -> list[Spot]:
    """Return where the members of a batch stand, and the jobs that follow it; many members by function."""
    if not graph["groups"]:
        return spots(knots(graph["nodes"]), len(graph["nodes"]))
    found = dict[str, Spot]()
    for one in graph["groups"]:
        name = one["function"] or "?"
        found.setdefault(name, Spot([], name, 0, len(found))).states[one["state"]] += one["count"]
    placed = sorted(found.values(), key=lambda one: (-one.count, one.function))
    for row, one in enumerate(placed):
        one.row = row
    groups = range(len(placed))
    for row, node in enumerate(graph["nodes"]):
        policy = "fail" if node["role"] == "on_success" else "ignore"
        after = dict.fromkeys(groups, policy)
        placed.append(Spot([node["id"]], node["function"] or "?", 1, row, Counter([node["status"]]), after))
    return placed


def drawing(
    view: PageRequest, placed: Sequence[Spot], here: str = "", roles: Mapping[str, str] | None = None, batch: str = ""
) -> Any:
    """Return a graph as SVG. `here`: the job whose page it is. `roles`: by id, when a job follows. `batch`: the batch whose members these are.
    Boxes are links: to the job, or to the jobs of the box."""
    from markupsafe import Markup

    wide = max((one.layer for one in placed), default=0) * _STEP_X + _WIDE + 4
    high = max((one.row for one in placed), default=0) * _STEP_Y + _HIGH + 4
    lines = Markup("").join(_line(placed[number], one, policy) for one in placed for number, policy in one.after.items())
    boxes = Markup("").join(_box(view, one, here, roles or {}, batch) for one in placed)
    label = f"{sum(one.count for one in placed):,} jobs in the order in which they wait for each other"
    return Markup(
        '<div class="graph" tabindex="0" role="region" aria-label="Graph"><a class="skip" href="#behind-graph">Skip the drawing</a>'
        '<svg role="group" aria-label="{}" width="{}" height="{}">{}{}</svg></div><span id="behind-graph" tabindex="-1"></span>'
    ).format(label, wide, high, lines, boxes)


def sums(placed: Sequence[Spot]) -> list[tuple[str, int, str]]:
    """Return the boxes of a graph as text: the function, how many jobs there are, and their states."""
    return [(_called(one.function), one.count, _counts(one)) for one in placed]


def _counts(one: Spot) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in sorted(one.states.items()))


def _called(function: str) -> str:
    return "batches" if function == "#" else function


def _corner(one: Spot) -> tuple[int, int]:
    return one.layer * _STEP_X + 2, one.row * _STEP_Y + 2


def _line(parent: Spot, child: Spot, policy: str) -> Any:
    from markupsafe import Markup

    (x, y), (to_x, to_y) = _corner(parent), _corner(child)
    x, y, to_y = x + _WIDE, y + _HIGH // 2, to_y + _HIGH // 2
    bend = max(20, (to_x - x) // 2)
    loose = Markup(' class="loose"') if policy != "fail" else ""
    return Markup('<path{} d="M{} {}C{} {} {} {} {} {}"/>').format(loose, x, y, x + bend, y, to_x - bend, to_y, to_x, to_y)


def _box(view: PageRequest, one: Spot, here: str, roles: Mapping[str, str], batch: str) -> Any:
    from markupsafe import Markup

    x, y = _corner(one)
    worst = min(one.states, key=lambda state: _WORST.index(state) if state in _WORST else len(_WORST))
    full = _called(one.function)
    name = full.rpartition(".")[2] or full
    alone = one.ids[0] if len(one.ids) == 1 else ""
    role = _ROLES.get(roles.get(alone, ""), "")
    told = ", ".join(filter(None, (worst, role))) if alone else _counts(one)
    below = told if alone else f"{one.count:,} {'job' if one.count == 1 else 'jobs'}: {told}"
    title = f"{full}: {alone + ', ' if alone else ''}{told}"
    body = Markup(
        '<title>{}</title><rect x="{}" y="{}" width="{}" height="{}" rx="6"/>'
        '<text x="{}" y="{}">{}</text><text class="state" x="{}" y="{}">{}</text>'
    ).format(text(title, 300), *(x, y, _WIDE, _HIGH, x + 10, y + 17, text(name, _NAME), x + 10, y + 33, text(below, _NAME + 6)))
    kinds = KINDS.get(worst, "quiet") + (" here" if here and here in one.ids else "")
    link = _link(view, one, alone, batch)
    return (
        Markup('<a href="{}" class="{}">{}</a>').format(link, kinds, body)
        if link
        else Markup('<g class="{}">{}</g>').format(kinds, body)
    )


def _link(view: PageRequest, one: Spot, alone: str, batch: str) -> str:
    """Return the address of a job, a batch, or the jobs of a box; empty if no query finds them."""
    if alone.startswith("#"):
        return view.url(f"/batches/{_quoted(alone[1:])}")
    if alone:
        return view.url(f"/jobs/{_quoted(alone)}")
    if one.function in ("#", "?"):
        return ""
    terms = ([term("batch", batch)] if batch else []) + [term("func", one.function)]
    return view.url("/jobs", q=" ".join(terms))


def _quoted(job_id: str) -> str:
    from urllib.parse import quote

    return quote(job_id, safe="")


# -- what each waited and ran, beside each other


class Bars:
    """The bars of the jobs of a graph, all on one axis of time, which ends with the last that is known."""

    def __init__(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        moments = [at for one in nodes for name in ("enqueued_at", "started_at", "ended_at") if (at := _time(one[name]))]
        self._first, self._last = min(moments, default=0.0), max(moments, default=0.0)

    def of(self, node: Mapping[str, Any]) -> Any:
        """Return the bar of a job as SVG: pale while it waited, then in the colour of its state. Nothing for one that was not yet queued."""
        from markupsafe import Markup

        queued, started, ended = (_time(node[name]) for name in ("enqueued_at", "started_at", "ended_at"))
        if not queued:
            return ""
        runs = KINDS.get(node["status"]) == "way"
        waited_to = started or ended or self._last
        ran_to = self._last if runs else ended or started
        parts = Markup('<rect class="wait" x="{:.1f}" width="{:.1f}" y="3" height="6"/>').format(
            self._x(queued), self._w(queued, waited_to)
        )
        told = f"waited {seconds(max(0.0, waited_to - queued))}" if started or ended else "waits"
        if started:
            kind = KINDS.get(node["status"], "way")
            parts += Markup('<rect class="{}" x="{:.1f}" width="{:.1f}" y="0" height="12" rx="2"/>').format(
                kind, self._x(started), max(2.0, self._w(started, ran_to or started))
            )
            told += ", runs" if runs else f", ran {seconds(max(0.0, (ended or started) - started))}"
        return Markup(
            '<svg class="bars" role="img" aria-label="{}" viewBox="0 0 {} 12" width="{}" height="12"><title>{}</title>{}</svg>'
        ).format(told, _BAR + 2, _BAR + 2, told, parts)

    def _x(self, at: float) -> float:
        return _BAR * (at - self._first) / ((self._last - self._first) or 1)

    def _w(self, start: float, end: float) -> float:
        return max(0.0, self._x(end) - self._x(start))


def _time(value: str | None) -> float | None:
    return datetime.fromisoformat(value).timestamp() if value else None
