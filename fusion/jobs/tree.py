"""The dependency graph around a job: its ancestors and descendants at any distance, also those whose wait is over."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from fusion.dependency import SIGNS
from fusion.exceptions import NoSuchJobError
from fusion.jobs.failures import CHUNK, add_calls, function_of
from fusion.jobs.visible import QUEUES, seen
from fusion.kernel.scope import EVERYTHING, Scope
from fusion.kernel.timeutil import from_iso
from fusion.store.layout.codec import text
from fusion.store.read.graph_inspector import MOST, NAMED, Walked, Way
from fusion.store.read.inspector import Inspector

#: Jobs of a tree at most.
LARGEST = 1000
#: Most parents of a job that are read.
_PARENTS = NAMED * 11
#: Jobs of a level that are read at most for a viewer who is restricted to some queues.
_LOOKED_AT = 10_000
#: Fields of a job that are read, and those for a viewer who is restricted to some queues.
_FIELDS = ("status", "origin", "func", "parents", "created_at", "enqueued_at", "started_at", "ended_at")
_WITH_QUEUES = (*_FIELDS, *QUEUES)
_POLICIES = {sign: policy for policy, sign in SIGNS.items()}


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A job of a tree. `level`: 0 is the job itself, -1 a job that it waits for, 1 a job that waits for it, and so on, by the shortest path.
    `status` is `gone` if it has no record any more. `parents`: its parents within the tree, each with what happens to this job if that
    parent does not finish (`fail`, `ignore`, `wait`); `others`: the number of its parents outside of the tree. `enqueued_at`, `started_at`,
    `ended_at`: when it entered its queue, when its last run began, when it ended."""

    id: str
    status: str
    queue: str
    function: str
    level: int
    parents: Mapping[str, str]
    others: int
    enqueued_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class JobTree:
    """The graph around a job. `nodes`: the job itself, then the others, nearest first. `cut`: the graph has more jobs."""

    id: str
    nodes: tuple[TreeNode, ...]
    cut: bool


def tree(inspector: Inspector, job_id: str, limit: int = LARGEST, scope: Scope = EVERYTHING) -> JobTree:
    """Return the graph around a job, with up to `limit` jobs. A round trip reads up to 300 of them, however many levels these are. With a
    restricted `scope`, jobs of other queues and jobs that are gone are left out, and so is all behind them. NoSuchJobError if the job is
    missing."""
    walk = _Walk(_Reads(inspector, _FIELDS if scope.all else _WITH_QUEUES), job_id, max(1, limit), scope)
    while walk.go_on():
        pass
    return walk.found()


class _Reads:
    """The part of the graph that was read. A read goes on from the jobs that it was to find, and from all others that are named and not read yet:
    what the next ones need is mostly known. `_ahead`: those others, nearest first."""

    def __init__(self, inspector: Inspector, fields: Sequence[str]) -> None:
        self._inspector, self._fields = inspector, fields
        self._walked: dict[str, Walked] = {}
        self._parents: dict[str, list[str]] = {}
        self._ahead: dict[tuple[Way, str], None] = {}

    def read(self, starts: Sequence[tuple[Way, str]], room: int) -> None:
        """Read these jobs, with their children unless the way is to parents. `room`: how many jobs there is use for in all."""
        while missing := [(way, one) for way, one in starts if not self._has(one, way)][:MOST]:
            others = dict.fromkeys([*missing, *self._ahead])
            found = self._inspector.walk_graph([*others][:MOST], self._fields, max(room, len(missing)))
            fresh = [one for one in found if one.children is not None or one.id not in self._walked]
            stored = {one.id: one.row for one in fresh if one.row is not None}
            add_calls(self._inspector, [*stored], [*stored.values()])
            self._walked.update((one.id, one) for one in fresh)
            self._look_ahead(fresh)

    def _look_ahead(self, fresh: Iterable[Walked]) -> None:
        for one in fresh:
            self._parents[one.id] = named_parents((one.row or {}).get("parents"), one.further)
            if one.way != "d":
                self._ahead.update((("u", id_of(parent)), None) for parent in self._parents[one.id])
            self._ahead.update((("d", child), None) for child in one.children or ())
        self._ahead = {(way, one): None for way, one in self._ahead if not self._has(one, way)}

    def _has(self, job_id: str, way: Way) -> bool:
        known = self._walked.get(job_id)
        return known is not None and (way == "u" or known.children is not None)

    def row(self, job_id: str) -> dict[str, bytes | None] | None:
        """Return the fields of a job that was read; None if it has no record."""
        return self._walked[job_id].row

    def children(self, job_id: str) -> tuple[str, ...]:
        """Return the jobs that have this one as a parent, or had it. It was read on the way to them."""
        return self._walked[job_id].children or ()

    def parents(self, job_id: str) -> list[str]:
        """Return the parents of a job that was read, as its record names them."""
        return self._parents[job_id]


class _Walk:
    """The walk through the graph, level by level. `_rows`: the records of the jobs that may be seen; `_levels`: the level of each job;
    `_members`: its parents as its record names them; `_met`: the parent through which it was found."""

    def __init__(self, reads: _Reads, job_id: str, limit: int, scope: Scope) -> None:
        self._reads, self._id, self._limit, self._scope = reads, job_id, limit, scope
        self._levels = {job_id: 0}
        self._rows: dict[str, dict[str, bytes | None]] = {}
        self._members: dict[str, list[str]] = {}
        self._met: dict[str, str] = {}
        self._read([job_id], "b")
        if job_id not in self._rows:
            raise NoSuchJobError(f"no job {job_id!r}: it never existed, was deleted, or its result_ttl is over")
        self._up, self._down, self._cut, self._distance = [job_id], [job_id], False, 0

    def go_on(self) -> bool:
        """Go to the next level on both sides; return False if there is none, or no room for it. If room is short, each side gets half."""
        left = self._limit - len(self._levels)
        self._distance += 1
        self._read_both(left)
        up = self._seen(self._unknown(id_of(member) for one in self._up for member in self._members.get(one, ())), "u")
        down = [child for child in self._children(left) if child not in up]
        self._cut = self._cut or len(up) + len(down) > left
        above = max(left // 2, left - len(down))
        self._up = self._take(up[:above], -self._distance, "u")
        self._down = self._take(down[: left - len(self._up)], self._distance, "d")
        return bool(self._up or self._down) and not self._cut

    def found(self) -> JobTree:
        """Return the graph read so far."""
        rank = sorted(self._levels, key=lambda one: (abs(self._levels[one]), self._levels[one] > 0))
        return JobTree(self._id, tuple(map(self._node, rank)), self._cut)

    def _read_both(self, left: int) -> None:
        """Read jobs of the next level on both sides together."""
        up = self._unknown(id_of(member) for one in self._up for member in self._members.get(one, ()))
        down = self._unknown(child for one in self._down for child in self._reads.children(one))
        self._reads.read([*(("u", one) for one in up[:left]), *(("d", one) for one in down[: left + 1])], self._room())

    def _seen(self, ids: list[str], way: Way) -> list[str]:
        if self._scope.all:
            return ids
        self._read(ids[:_LOOKED_AT], way)
        return [one for one in ids if one in self._rows]

    def _unknown(self, ids: Iterable[str]) -> list[str]:
        return [one for one in dict.fromkeys(ids) if one not in self._levels]

    def _children(self, left: int) -> list[str]:
        """Return the jobs that name one of the last level as a parent; a few more than there is room for, if there are more."""
        fresh = dict[str, None]()
        for start in range(0, len(self._down), CHUNK):
            part = self._down[start : start + CHUNK]
            for parent in part:
                for child in self._unknown(self._reads.children(parent)):
                    self._met.setdefault(child, parent)
                    fresh[child] = None
            if len(fresh) > left:
                break
        seen = self._seen([*fresh], "d")
        self._read(seen[: left + 1], "d")
        # a job that was enqueued anew without this parent is no longer its child
        return [child for child in seen if child not in self._rows or self._names(child, self._met[child])]

    def _names(self, child: str, parent: str) -> bool:
        members = self._members[child]
        return len(members) >= _PARENTS or any(id_of(member) == parent for member in members)

    def _take(self, ids: Sequence[str], level: int, way: Way) -> list[str]:
        self._read(ids, way)
        self._levels.update(dict.fromkeys(ids, level))
        return list(ids)

    def _room(self) -> int:
        return self._limit - len(self._levels) + 1

    def _read(self, ids: Sequence[str], way: Way) -> None:
        self._reads.read([(way, one) for one in ids], self._room())
        for one in ids:
            row = self._reads.row(one)
            if one not in self._rows and row is not None and seen(self._scope, row):
                self._rows[one], self._members[one] = row, self._reads.parents(one)

    def _node(self, job_id: str) -> TreeNode:
        level = self._levels[job_id]
        row = self._rows.get(job_id)
        if row is None:
            known = {self._met[job_id]: "fail"} if level > 0 else {}
            return TreeNode(job_id, "gone", "", "", level, known, 0)
        members = self._members[job_id]
        parents = {id_of(one): policy_of(one) for one in members if id_of(one) in self._levels}
        if level > 0 and self._met[job_id] not in parents:
            parents[self._met[job_id]] = "fail"
        return TreeNode(
            job_id,
            text(row["status"]),
            text(row["origin"]),
            function_of(row),
            level,
            parents,
            max(0, len(members) - len(parents)) if self._scope.all else 0,
            *(from_iso(row[name]) for name in ("enqueued_at", "started_at", "ended_at")),
        )


def named_parents(raw: bytes | None, further: Iterable[bytes] = ()) -> list[str]:
    """Return the parents that a record names, each with its sign, but for what is no id; none if that can't be read."""
    try:
        listed = json.loads(raw or b"[]")
        for part in further:
            listed += json.loads(part)
        return [name for name in map(str, listed) if name.isascii()]
    except (ValueError, TypeError, RecursionError):
        return []


def id_of(member: str) -> str:
    """Return the id of a parent that a record names."""
    return member[1:] if member[:1] in ("?", "~") else member


def policy_of(member: str) -> str:
    """Return what happens to the job if this parent, as its record names it, does not finish."""
    return _POLICIES[member[: len(member) - len(id_of(member))]]
