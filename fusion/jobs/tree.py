"""The graph of which a job is a part: those that it waits for, or waited for, and those that wait for it, or waited, however far away."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fusion.dependency import SIGNS
from fusion.exceptions import NoSuchJobError
from fusion.jobs.failures import CHUNK, add_calls, function_of
from fusion.jobs.visible import seen
from fusion.kernel.scope import EVERYTHING, Scope
from fusion.store.layout.codec import text
from fusion.store.read.inspector import Inspector

#: Jobs of a tree, unless fewer are asked for.
LARGEST = 1000
#: Parents that a record names, and hundreds of further ones that are looked at.
_NAMED, _FURTHER = 100, 10
#: Children of a level at which is looked for who sees some queues alone.
_LOOKED_AT = 10_000
_FIELDS = ("status", "origin", "original_queue", "func", "parents", "created_at")
_POLICIES = {sign: policy for policy, sign in SIGNS.items()}


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A job of a tree. `level`: 0 is the job itself, -1 one that it waits for, 1 one that waits for it, and so on, by the shortest way.
    `status` is `gone` if there is no record of it any more. `parents`: those of the tree that it waits, or waited, for, each with what becomes
    of it should that one not finish (`fail`, `ignore`, `wait`); `others`: how many more it has."""

    id: str
    status: str
    queue: str
    function: str
    level: int
    parents: Mapping[str, str]
    others: int


@dataclass(frozen=True, slots=True)
class JobTree:
    """The graph around a job: `nodes` are the job itself and then the others, the nearest first. `cut`: there are more."""

    id: str
    nodes: tuple[TreeNode, ...]
    cut: bool


def tree(inspector: Inspector, job_id: str, limit: int = LARGEST, scope: Scope = EVERYTHING) -> JobTree:
    """The graph around a job, of up to `limit` jobs. Read level by level, a hundred jobs in a round trip. NoSuchJobError. For who sees some
    queues alone it ends at jobs of others, and at those that are gone, as if they were not there."""
    walk = _Walk(inspector, job_id, max(1, limit), scope)
    while walk.go_on():
        pass
    return walk.found()


class _Walk:
    """`_rows`: what was read of the jobs met; `_levels`: how far each is; `_members`: the parents that it names, as its record does; `_met`: of
    whom it was found as a child."""

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
        """The next level on either side; False if there is none, or no room. Where there is too little, each side has half."""
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
        """What was met."""
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
        """Those that name one of the last level as a parent; a few more than there is room for, if there are."""
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
        # one that was enqueued anew without it, or long ago, is no child of it any more
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
        )


def _id_of(member: str) -> str:
    return member[1:] if member[:1] in ("?", "~") else member
