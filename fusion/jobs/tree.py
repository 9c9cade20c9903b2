"""The dependency graph around a job: its ancestors and descendants at any distance, also those whose wait is over."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from fusion.dependency import SIGNS
from fusion.exceptions import NoSuchJobError
from fusion.jobs.failures import CHUNK, add_calls, function_of
from fusion.jobs.visible import seen
from fusion.kernel.scope import EVERYTHING, Scope
from fusion.kernel.timeutil import from_iso
from fusion.store.layout.codec import text
from fusion.store.read.inspector import Inspector

#: Jobs of a tree at most.
LARGEST = 1000
#: Parents that a record names, and the hundreds of further parents that are read.
_NAMED, _FURTHER = 100, 10
#: Jobs of a level that are read at most for a viewer who is restricted to some queues.
_LOOKED_AT = 10_000
_FIELDS = ("status", "origin", "original_queue", "func", "parents", "created_at", "enqueued_at", "started_at", "ended_at")
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
    """Return the graph around a job, with up to `limit` jobs. It is read level by level, a hundred jobs in a round trip. With a restricted
    `scope`, jobs of other queues and jobs that are gone are left out, and so is all behind them. NoSuchJobError if the job is missing."""
    walk = _Walk(inspector, job_id, max(1, limit), scope)
    while walk.go_on():
        pass
    return walk.found()


class _Walk:
    """The walk through the graph. `_rows`: the records read so far; `_levels`: the level of each job; `_members`: its parents as its record
    names them; `_met`: the parent through which it was found."""

    def __init__(self, inspector: Inspector, job_id: str, limit: int, scope: Scope) -> None:
        self._inspector, self._id, self._limit, self._scope = inspector, job_id, limit, scope
        self._levels = {job_id: 0}
        self._rows: dict[str, dict[str, bytes | None]] = {}
        self._members: dict[str, list[str]] = {}
        self._met: dict[str, str] = {}
        self._read([job_id])
        if job_id not in self._rows:
            raise NoSuchJobError(f"no job {job_id!r}: it never existed, was deleted, or its result_ttl is over")
        self._up, self._down, self._cut, self._distance = [job_id], [job_id], False, 0

    def go_on(self) -> bool:
        """Read the next level on both sides; return False if there is none, or no room for it. If room is short, each side gets half."""
        left = self._limit - len(self._levels)
        self._distance += 1
        up = self._seen(self._unknown(_id_of(member) for one in self._up for member in self._members.get(one, ())))
        down = [child for child in self._children(left) if child not in up]
        self._cut = self._cut or len(up) + len(down) > left
        above = max(left // 2, left - len(down))
        self._up = self._take(up[:above], -self._distance)
        self._down = self._take(down[: left - len(self._up)], self._distance)
        return bool(self._up or self._down) and not self._cut

    def found(self) -> JobTree:
        """Return the graph read so far."""
        rank = sorted(self._levels, key=lambda one: (abs(self._levels[one]), self._levels[one] > 0))
        return JobTree(self._id, tuple(map(self._node, rank)), self._cut)

    def _seen(self, ids: list[str]) -> list[str]:
        if self._scope.all:
            return ids
        self._read([one for one in ids[:_LOOKED_AT] if one not in self._rows])
        return [one for one in ids if one in self._rows]

    def _unknown(self, ids: Iterable[str]) -> list[str]:
        return [one for one in dict.fromkeys(ids) if one not in self._levels]

    def _children(self, left: int) -> list[str]:
        """Return the jobs that name one of the last level as a parent; a few more than there is room for, if there are more."""
        fresh: list[str] = []
        for start in range(0, len(self._down), CHUNK):
            part = self._down[start : start + CHUNK]
            for parent, children in zip(part, self._inspector.offspring(part, LARGEST), strict=True):
                for child in self._unknown(children):
                    self._met.setdefault(child, parent)
                    fresh.append(child)
            if len(set(fresh)) > left:
                break
        fresh = self._seen([*dict.fromkeys(fresh)])
        self._read(fresh[: left + 1])
        # a job that was enqueued anew without this parent is no longer its child
        return [child for child in fresh if child not in self._rows or self._names(child, self._met[child])]

    def _names(self, child: str, parent: str) -> bool:
        members = self._members[child]
        return len(members) >= _NAMED * (_FURTHER + 1) or any(_id_of(member) == parent for member in members)

    def _take(self, ids: Sequence[str], level: int) -> list[str]:
        self._read([one for one in ids if one not in self._rows])
        self._levels.update(dict.fromkeys(ids, level))
        return list(ids)

    def _read(self, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), CHUNK):
            part = ids[start : start + CHUNK]
            rows = self._inspector.table(part, _FIELDS)
            add_calls(self._inspector, part, rows)
            for one, row in zip(part, rows, strict=True):
                if isinstance(row, dict) and row["status"] is not None and seen(self._scope, row):
                    self._rows[one], self._members[one] = row, self._listed(one, row["parents"])

    def _listed(self, job_id: str, raw: bytes | None) -> list[str]:
        try:
            listed = json.loads(raw or b"[]")
            if len(listed) >= _NAMED:
                listed += self._inspector.further_parents(job_id, _FURTHER)
            return [str(member) for member in listed]
        except (ValueError, TypeError, RecursionError):
            return []

    def _node(self, job_id: str) -> TreeNode:
        level = self._levels[job_id]
        row = self._rows.get(job_id)
        if row is None:
            known = {self._met[job_id]: "fail"} if level > 0 else {}
            return TreeNode(job_id, "gone", "", "", level, known, 0)
        members = self._members[job_id]
        parents = {_id_of(one): _POLICIES[one[: len(one) - len(_id_of(one))]] for one in members if _id_of(one) in self._levels}
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


def _id_of(member: str) -> str:
    return member[1:] if member[:1] in ("?", "~") else member
