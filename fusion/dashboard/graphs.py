"""Graphs of jobs, drawn here as SVG: in layers from left to right, and bars of what they waited and ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from fusion.dashboard.filters import seconds, text
from fusion.dashboard.page import PageRequest
from fusion.jobs.layers import Knot, Spot, spots
from fusion.kernel.states import LIGHTS

#: The size of a box, and of a box with the room around it; characters of a function's name that it has room for.
_WIDE, _HIGH, _STEP_X, _STEP_Y, _NAME = 170, 40, 230, 54, 22
#: The width of the bars of a graph.
_BAR = 160
#: What is worst: of several jobs in a box it gives the colour.
_WORST = ("failed", "stopped", "canceled", "blocked", "started", "deferred", "scheduled", "queued", "gone", "finished")


def knots(nodes: Sequence[Mapping[str, Any]]) -> list[Knot]:
    """Return the jobs of a graph of the API."""
    return [
        Knot(one["id"], one["function"] or "?", one["status"], {each["id"]: each["on_failure"] for each in one["parents"]})
        for one in nodes
    ]


def drawing(view: PageRequest, found: Sequence[Knot], here: str = "") -> Any:
    """Return a graph as SVG. `here`: the job whose page it is. Boxes are links: to the job, or to the jobs of the box."""
    from markupsafe import Markup

    placed = spots(found)
    wide = max((one.layer for one in placed), default=0) * _STEP_X + _WIDE + 4
    high = max((one.row for one in placed), default=0) * _STEP_Y + _HIGH + 4
    lines = Markup("").join(_line(placed[number], one, policy) for one in placed for number, policy in one.after.items())
    boxes = Markup("").join(_box(view, one, here) for one in placed)
    label = f"{len(found)} jobs in the order in which they wait for each other"
    return Markup(
        '<div class="graph" tabindex="0" role="region" aria-label="Graph"><svg role="group" aria-label="{}" width="{}" height="{}">{}{}</svg></div>'
    ).format(label, wide, high, lines, boxes)


def _corner(one: Spot) -> tuple[int, int]:
    return one.layer * _STEP_X + 2, one.row * _STEP_Y + 2


def _line(parent: Spot, child: Spot, policy: str) -> Any:
    from markupsafe import Markup

    (x, y), (to_x, to_y) = _corner(parent), _corner(child)
    x, y, to_y = x + _WIDE, y + _HIGH // 2, to_y + _HIGH // 2
    bend = max(20, (to_x - x) // 2)
    loose = Markup(' class="loose"') if policy != "fail" else ""
    return Markup('<path{} d="M{} {}C{} {} {} {} {} {}"/>').format(loose, x, y, x + bend, y, to_x - bend, to_y, to_x, to_y)


def _box(view: PageRequest, one: Spot, here: str) -> Any:
    from markupsafe import Markup

    x, y = _corner(one)
    worst = min(one.states, key=lambda state: _WORST.index(state) if state in _WORST else len(_WORST))
    name = one.function.rpartition(".")[2] or one.function
    alone = len(one.ids) == 1
    told = worst if alone else ", ".join(f"{count:,} {state}" for state, count in sorted(one.states.items()))
    below = worst if alone else f"{len(one.ids):,} jobs: {told}"
    title = f"{one.function}: {one.ids[0] + ', ' if alone else ''}{told}"
    link = view.url(f"/jobs/{_quoted(one.ids[0])}") if alone else view.url("/jobs", q=f"func:{one.function}")
    return Markup(
        '<a href="{}" class="{}{}"><title>{}</title><rect x="{}" y="{}" width="{}" height="{}" rx="6"/>'
        '<text x="{}" y="{}">{}</text><text class="state" x="{}" y="{}">{}</text></a>'
    ).format(
        link,
        LIGHTS.get(worst, "") or "way",
        " here" if here in one.ids else "",
        text(title, 300),
        *(x, y, _WIDE, _HIGH, x + 10, y + 17, text(name, _NAME), x + 10, y + 33, text(below, _NAME + 6)),
    )


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
        runs = node["status"] == "started"
        waited_to = started or ended or self._last
        ran_to = self._last if runs else ended or started
        parts = Markup('<rect class="wait" x="{:.1f}" width="{:.1f}" y="3" height="6"/>').format(
            self._x(queued), self._w(queued, waited_to)
        )
        told = f"waited {seconds(max(0.0, waited_to - queued))}" if started or ended else "waits"
        if started:
            kind = LIGHTS.get(node["status"], "") or "way"
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
