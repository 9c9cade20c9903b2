"""Reads graphs of jobs by scripts that change nothing: one round trip for hundreds of jobs, however many layers they stand in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, cast

from fusion.store.layout import codec
from fusion.store.layout.compact import meant, sources
from fusion.store.read.base import InspectorBase
from fusion.store.read.tolerant import note_broken
from fusion.store.scripting.constants import FleetConstants
from fusion.store.scripting.host import ScriptHost

#: Jobs of one call at most, and its work in thousands of instructions as the script estimates them: 12.5 million at most, about 5 ms. 300 jobs
#: are two calls if each has few parents and children.
MOST, WORK = 300, 11_700
#: Children of one job that are read: those that have not ended, and as many of all that it ever had.
CHILDREN = 1000
#: A record that names this number of parents may have further ones.
NAMED = 100
#: Members of a batch that one call counts, within the same time.
COUNTED = 600

#: From a job on to its parents, to its children, or to both.
Way = Literal["u", "d", "b"]


@dataclass(frozen=True, slots=True)
class Walked:
    """A job of a graph. `way`: that on which the walk went on from it. `row`: its fields; None if it has no record that can be read. `further`:
    lists of parents that its record has no room for. `children`: None if the walk went on to its parents alone."""

    id: str
    way: Way
    row: dict[str, bytes | None] | None
    further: tuple[bytes, ...]
    children: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class MemberCount:
    """Number of members of a batch that call a function and are in a state. `function`: `#` for batches in it, empty if it is not known. `state`: of
    batches in it, and of jobs that are gone, the outcome, or `open`."""

    function: str
    state: str
    count: int


class GraphInspector(InspectorBase):
    """Reads graphs and counts members of batches. Each call is bounded."""

    def walk_graph(self, starts: Iterable[tuple[Way, str]], names: Sequence[str], most: int = MOST) -> list[Walked]:
        """Read these fields of these jobs, and of those met on from each in its way, the nearest first, in one call. It reads `most` jobs, but no
        more than `WORK` allows; the first one always. Fields must include `parents` and `status`."""
        read = [name for name in sources(names) if name not in ("status", "parents")]
        args = {
            "most": max(1, min(most, MOST)),
            "most_children": CHILDREN,
            "work": WORK,
            "named": NAMED,
            "n_fields": len(read),
        }
        rest = [*read, *(way + one for way, one in starts)]
        found, wrong = self._scripts._script("walk_graph")({}, args, rest)
        for key, kind in wrong:
            note_broken(self.connection, codec.text(key), codec.text(kind))
        return list(_walked(iter(found), names, ["status", "parents", *read]))

    def count_members(self, batch: str, first: int = 0, most: int = COUNTED) -> tuple[int, list[MemberCount]]:
        """Count members of a batch by function and state, in one call: `most` of them from the one of this number on. Also returns how many were
        looked at: fewer than `most` at the end."""
        args = {"batch": batch, "first": first, "most": max(1, min(most, COUNTED))}
        looked, *rows = self._scripts._script("count_members")({}, args)
        return int(looked), [MemberCount(codec.text(one), codec.text(state), int(count)) for one, state, count in rows]

    @cached_property
    def _scripts(self) -> ScriptHost:
        return ScriptHost(self.connection, FleetConstants(prefix=self.keys.prefix))


def add_counts(counts: Iterable[MemberCount]) -> list[MemberCount]:
    """Add up the counts of several calls, by function and state."""
    sums = Counter[tuple[str, str]]()
    for one in counts:
        sums[one.function, one.state] += one.count
    return [MemberCount(*key, count) for key, count in sorted(sums.items())]


def _walked(reply: Iterator[bytes | None], names: Sequence[str], read: Sequence[str]) -> Iterator[Walked]:
    for called in reply:
        way, job_id = cast(Way, (text := codec.text(called))[:1]), text[1:]
        row = [next(reply) for _ in read]
        further = tuple(_up_to_none(reply))
        children = None
        if way != "u":  # a set has no order of its own
            listed = [*map(codec.text, _up_to_none(reply)), *sorted(map(codec.text, _up_to_none(reply)))]
            children = tuple(dict.fromkeys(listed))
        yield Walked(job_id, way, None if row[0] is None else meant(names, read, row), further, children)


def _up_to_none(reply: Iterator[bytes | None]) -> Iterator[bytes]:
    while (one := next(reply)) is not None:
        yield one
