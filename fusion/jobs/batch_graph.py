"""The graph of a batch: its members, and the jobs that follow. Members of a large batch are counted by function and state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from time import monotonic

from fusion.jobs.failures import add_calls, function_of
from fusion.jobs.layers import MOST
from fusion.jobs.tree import TreeNode, id_of, named_parents, policy_of
from fusion.kernel.timeutil import from_iso
from fusion.store.layout.codec import text
from fusion.store.read.batch_inspector import INNER, BatchInfo, BatchInspector
from fusion.store.read.graph_inspector import COUNTED, MemberCount, add_counts
from fusion.store.read.inspector import Inspector

#: Seconds for which members are counted.
COUNTING = 0.25
_FIELDS = ("status", "origin", "func", "parents", "created_at", "enqueued_at", "started_at", "ended_at")
#: What follows, and what happens to it if a member does not finish.
_FOLLOWS = {"on_complete": "ignore", "on_success": "fail"}


@dataclass(frozen=True, slots=True)
class BatchGraph:
    """`nodes`: up to 300 members, then the jobs that follow; the id of a batch stands behind `#`, and its state and name in place of those of a
    job. `follows`: by id, `on_complete` or `on_success`. Of more members `groups` has counts, of the first `counted`."""

    id: str
    total: int
    counted: int
    nodes: tuple[TreeNode, ...]
    follows: Mapping[str, str]
    groups: tuple[MemberCount, ...]


def batch_graph(
    batches: BatchInspector, inspector: Inspector, info: BatchInfo, clock: Callable[[], float] = monotonic
) -> BatchGraph:
    """Return the graph of this batch as it is now. Over 300 members are counted, for a quarter of a second at most."""
    follows = {job: name for name in _FOLLOWS if (job := getattr(info, name))}
    if info.total > MOST:
        nodes = _nodes(inspector, follows, {})
        counted, groups = _count(inspector, info.id, clock)
        return BatchGraph(info.id, info.total, counted, tuple(nodes), follows, tuple(groups))
    outcomes = dict(batches.page(info.id, 0, MOST))
    jobs = [one for one in outcomes if not one.startswith(INNER)]
    inner = [one for one in outcomes if one.startswith(INNER)]
    members = _nodes(inspector, [*jobs, *follows], outcomes)
    infos = batches.infos([one.removeprefix(INNER) for one in inner]) if inner else []
    members[len(jobs) : len(jobs)] = [_batch(one, found) for one, found in zip(inner, infos, strict=True)]
    waited_for = {parent for one in members for parent in one.parents}
    last = [one.id for one in members if one.id not in waited_for and one.id not in follows]
    nodes = [
        replace(one, parents=dict.fromkeys(last, _FOLLOWS[follows[one.id]]), others=0) if one.id in follows else one
        for one in members
    ]
    return BatchGraph(info.id, info.total, info.total, tuple(nodes), follows, ())


def _count(inspector: Inspector, batch: str, clock: Callable[[], float]) -> tuple[int, list[MemberCount]]:
    counts, counted, until = list[MemberCount](), 0, clock() + COUNTING
    while True:
        looked, found = inspector.count_members(batch, counted)
        counted, counts = counted + looked, add_counts([*counts, *found])
        if looked < COUNTED or clock() >= until:
            return counted, counts


def _nodes(inspector: Inspector, ids: Iterable[str], outcomes: Mapping[str, str]) -> list[TreeNode]:
    """Return these jobs, each with those of its parents that are among them. One without a record has its outcome in the batch, or is gone."""
    known = dict.fromkeys(ids)
    rows = inspector.table([*known], _FIELDS) if known else []
    add_calls(inspector, [*known], rows)
    return [_node(one, row, known, outcomes.get(one, "gone")) for one, row in zip(known, rows, strict=True)]


def _node(job_id: str, row: Mapping[str, bytes | None] | Exception, known: Mapping[str, None], outcome: str) -> TreeNode:
    if isinstance(row, Exception) or row["status"] is None:
        return TreeNode(job_id, outcome, "", "", 0, {}, 0)
    members = named_parents(row["parents"])
    parents = {id_of(one): policy_of(one) for one in members if id_of(one) in known}
    return TreeNode(
        job_id,
        text(row["status"]),
        text(row["origin"]),
        function_of(row),
        0,
        parents,
        len(members) - len(parents),
        *(from_iso(row[name]) for name in ("enqueued_at", "started_at", "ended_at")),
    )


def _batch(member: str, info: BatchInfo | None) -> TreeNode:
    if info is None:
        return TreeNode(member, "gone", "", "", 0, {}, 0)
    return TreeNode(member, info.status, "", info.name or "batch", 0, {}, 0, info.created_at, info.created_at, info.ended_at)
