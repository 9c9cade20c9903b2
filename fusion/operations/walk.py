"""The sets in which an operation's jobs may stand, in an order that lets any process resume the walk."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from fusion.kernel.states import WAITING
from fusion.operations.actions import ORDER
from fusion.store.query.sources import KeySource

#: States whose sets are walked a second time at the end: a job may have entered them after the first time.
_AGAIN = frozenset({"blocked", "scheduled"})


class Stop(NamedTuple):
    """One set of the walk. `place` orders the sets, even while queues come and go."""

    rank: int
    key: str
    source: KeySource

    @property
    def place(self) -> str:
        """The place as the record stores it."""
        return f"{self.rank} {self.key}"


def stops(sources: Iterable[KeySource]) -> list[Stop]:
    """Return the sets in the order of the walk: first single jobs and sets of mixed states, then by state. Waiting jobs mostly move from
    state to state in this order."""
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
    """Return the index of a place in the walk, and whether its set is still there; if not, the index of the set after it."""
    rank, _, key = place.partition(" ")
    if not rank.isdecimal():
        return 0, False
    at = bisect_left([stop[:2] for stop in walk], (int(rank), key))
    return at, at < len(walk) and walk[at][:2] == (int(rank), key)
