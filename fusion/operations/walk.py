"""Where an operation's jobs may stand, in an order that a walk can be taken up in by anybody."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from fusion.kernel.states import WAITING
from fusion.operations.actions import ORDER
from fusion.store.query.sources import Source

#: Behind all others once more: what was met as blocked, or waiting for a time, before it came to be so.
_AGAIN = frozenset({"blocked", "scheduled"})


class Stop(NamedTuple):
    """One set of the walk. `place` orders them, whatever queues come and go meanwhile."""

    rank: int
    key: str
    source: Source

    @property
    def place(self) -> str:
        """As the record keeps it."""
        return f"{self.rank} {self.key}"


def stops(sources: Iterable[Source]) -> list[Stop]:
    """The sets in the order of the walk: single jobs and what has no one state first, then by state. Jobs that wait move on from one state to
    another, mostly in this order."""
    found = list[Stop]()
    for source in sources:
        rank = 1 + ORDER.index(source.state) if source.state in ORDER else 0
        found.append(Stop(rank, source.key, source))
        if source.state in _AGAIN:
            found.append(Stop(len(ORDER) + 1, source.key, source))
    found.sort(key=lambda stop: stop[:2])
    if not any(stop.source.state in WAITING and stop.source.state not in _AGAIN for stop in found):
        found = [stop for stop in found if stop.rank <= len(ORDER)]
    return found


def position(walk: list[Stop], place: str) -> tuple[int, bool]:
    """Where in the walk a place is, and whether its set is still in it; else the one behind it."""
    rank, _, key = place.partition(" ")
    if not rank.isdecimal():
        return 0, False
    at = bisect_left([stop[:2] for stop in walk], (int(rank), key))
    return at, at < len(walk) and walk[at][:2] == (int(rank), key)
