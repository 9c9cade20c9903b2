"""The output of `job graph` and `batch graph`: the jobs of a graph in layers, with a bar of what each waited and ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from fusion.cli.context import seconds
from fusion.cli.output import styled
from fusion.cli.tables import table
from fusion.jobs.batch_graph import BatchGraph
from fusion.jobs.layers import MOST, Knot, Spot, spots
from fusion.jobs.tree import JobTree, TreeNode
from fusion.kernel.states import LIGHTS

#: Columns of a bar; layers that are indented.
_BAR, _DEEPEST = 24, 6
#: Most other jobs that a line names.
_NAMED = 2
_COLOURS = {name: {"good": "green", "bad": "red", "warn": "yellow"}[light] for name, light in LIGHTS.items()}


def graph_lines(found: JobTree, at: datetime, within: int | None = -1) -> list[str]:
    """Return the graph as text at this time, `within` this number of columns, or those of the terminal."""
    lines = _drawn(found.nodes, at, within)
    if found.cut:
        lines += ["", f"There are more: these are the {len(found.nodes):,} nearest"]
    return lines


def batch_lines(found: BatchGraph, at: datetime, within: int | None = -1) -> list[str]:
    """Return the graph of a batch as text, as `graph_lines` does."""
    if not found.groups:
        return _drawn(found.nodes, at, within, len(found.nodes)) if found.nodes else ["Nothing is in it yet"]
    states = dict[str, dict[str, int]]()
    for one in found.groups:
        states.setdefault({"#": "(batches)"}.get(one.function, one.function) or "?", {})[one.state] = one.count
    rows = [(function, f"{sum(of.values()):,}", _counts(of)) for function, of in states.items()]
    lines = table(("FUNCTION", "JOBS", "STATES"), rows, right=(1,), within=within)
    if found.counted < found.total:
        lines += ["", f"There are more: these are the first {found.counted:,} of {found.total:,}"]
    return lines + (["", "Then:", *_drawn(found.nodes, at, within)] if found.nodes else [])


def _drawn(found: Sequence[TreeNode], at: datetime, within: int | None, most: int = MOST) -> list[str]:
    placed = spots([Knot(one.id, one.function or "?", one.status, one.parents) for one in found], most)
    if len(found) > most:
        return table(("FUNCTION", "JOBS", "STATES", "AFTER"), [_group(one, placed) for one in placed], right=(1,), within=within)
    nodes, bars = {one.id: one for one in found}, _Bars(found, at)
    head = ("FUNCTION", "STATE", "WAITED", "RAN", "." * 4 + " WAITS, # RUNS", "JOB", "AFTER")
    return table(head, [_row(one, placed, nodes, bars) for one in placed], right=(2, 3), within=within)


def _counts(states: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in sorted(states.items()))


def _indented(one: Spot) -> str:
    return "  " * min(one.layer, _DEEPEST) + (f"{one.layer}: " if one.layer > _DEEPEST else "") + one.function


def _group(one: Spot, placed: Sequence[Spot]) -> tuple[str, ...]:
    after = [placed[number].function for number in one.after]
    return _indented(one), f"{len(one.ids):,}", _counts(one.states), _some(after)


def _row(one: Spot, placed: Sequence[Spot], nodes: Mapping[str, TreeNode], bars: _Bars) -> tuple[str, ...]:
    node = nodes[one.ids[0]]
    waited, ran = bars.seconds(node)
    return (
        _indented(one),
        styled(node.status, _COLOURS.get(node.status)),
        "-" if waited is None else seconds(waited),
        "-" if ran is None else seconds(ran),
        bars.of(node),
        node.id,
        _some([placed[number].ids[0] for number in one.after]),
    )


def _some(names: Sequence[str]) -> str:
    more = f" +{len(names) - _NAMED}" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


class _Bars:
    """The bars of all jobs of a graph, on one axis of time, up to this time if one of them has not ended."""

    def __init__(self, nodes: Sequence[TreeNode], at: datetime) -> None:
        moments = [moment for one in nodes for moment in (one.enqueued_at, one.started_at, one.ended_at) if moment]
        open_ = any(one.enqueued_at and not one.ended_at for one in nodes)
        self._first, self._last = min(moments, default=at), at if open_ else max(moments, default=at)

    def seconds(self, one: TreeNode) -> tuple[float | None, float | None]:
        """Return how long a job waited, and how long it ran."""
        if one.enqueued_at is None:
            return None, None
        started = one.started_at or one.ended_at or self._last
        waited = max(0.0, (started - one.enqueued_at).total_seconds())
        if one.started_at is None:
            return waited, None
        return waited, max(0.0, ((one.ended_at or self._last) - one.started_at).total_seconds())

    def of(self, one: TreeNode) -> str:
        """Return the bar of a job: dots while it waited, `#` while it ran."""
        if one.enqueued_at is None:
            return ""
        _, ran = self.seconds(one)
        begin, start = self._place(one.enqueued_at), self._place(one.started_at or one.ended_at or self._last)
        end = self._place(one.ended_at or self._last)
        dots = "." * max(0 if ran is not None else 1, start - begin)
        return " " * begin + dots + ("#" * max(1, end - start) if ran is not None else "")

    def _place(self, at: datetime) -> int:
        whole = (self._last - self._first).total_seconds() or 1.0
        return min(_BAR - 1, max(0, round((_BAR - 1) * (at - self._first).total_seconds() / whole)))
