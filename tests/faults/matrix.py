"""The crash matrix: at each place where a worker, its fork server or a horse may be, each way in which it may be struck.

A case is three jobs in a queue of their own and a worker that stands still when it gets to the place; it is struck from outside. Several
cases are under way at the same time, and one healthy worker finishes what all of them left.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

FULL = os.environ.get("FUSION_TEST_CRASH") == "full"

#: SIGKILL of the job's process, of the worker, of both; SIGSTOP for twice the lease.
VICTIMS = ("horse", "worker", "both", "freeze")


class Mode(NamedTuple):
    """A way to start a worker."""

    name: str
    args: tuple[str, ...] = ()


MODES = (Mode("process per job"),)


@dataclass(frozen=True)
class Point:
    """A failpoint. `nth`: which of its passes counts. `held`: which job, the `first` or the `last`, runs until the strike; with the first
    nothing counts before that runs.

    `drive`: what has to happen to get there: `quit` (while a job runs), `ring` (a token comes when no job is taken any more).
    """

    name: str
    nth: int = 1
    held: str = ""
    drive: str = ""
    victims: tuple[str, ...] = VICTIMS

    @property
    def in_worker(self) -> bool:
        return not self.name.startswith(("fork.", "horse.")) or self.name == "fork.ask"

    def __str__(self) -> str:
        return self.name if self.nth == 1 else f"{self.name}@{self.nth}"


def _around(script: str, *nth: int, held: str = "", drive: str = "", victims: tuple[str, ...] = VICTIMS) -> Iterator[Point]:
    for n in nth or (1,):
        for side in ("before", "after"):
            yield Point(f"{script}.{side}", n, held, drive, victims)


_NO_HORSE_YET = ("worker", "freeze")
_FORK_SERVER = ("server", *VICTIMS)

#: The turns of a worker with one slot: take the first job; tell of it and take the second; tell that this is to be tried again.
POINTS = (
    *_around("register", victims=_NO_HORSE_YET),
    *_around("turn", 1, 2, 3),
    Point("claim.after_reply"),
    Point("claim.after_reply", 2),
    Point("handout.after"),
    Point("handout.after", 3),
    Point("outcome.received"),
    Point("outcome.received", 2),
    Point("fork.ask", victims=_NO_HORSE_YET),
    Point("fork.ask", 3),
    *_around("extend", held="first"),
    *_around("reap", held="first"),
    *_around("prune", held="first"),
    *_around("promote", held="first"),
    *_around("clean", held="first"),
    *_around("save_meta", held="last"),
    *_around("log_event", held="last"),
    *_around("ring", drive="ring"),
    Point("shutdown.drain", held="first", drive="quit"),
    *_around("deregister", held="first", drive="quit"),
    Point("fork.before", victims=("server", *_NO_HORSE_YET)),
    Point("fork.before", 3, victims=_FORK_SERVER),
    Point("fork.after", victims=_FORK_SERVER),
    Point("fork.after", 3, victims=_FORK_SERVER),
    Point("horse.start"),
    Point("horse.before_task"),
    Point("horse.after_task"),
    Point("horse.before_outcome"),
    Point("horse.after_outcome"),
)


class Case(NamedTuple):
    point: Point
    victim: str
    mode: Mode

    def __str__(self) -> str:
        return f"{self.point}, {self.victim}"


def product() -> list[list[Case]]:
    """All there is, a place at a time."""
    return [[Case(point, victim, mode) for victim in point.victims] for mode in MODES for point in POINTS]


def subset(size: int) -> list[list[Case]]:
    """Each place once, in groups of `size`, struck in the way that came up least so far: all come up, with all modes."""
    used: Counter[tuple[str, Mode]] = Counter()
    cases: dict[str, Case] = {}
    for point in _deepest():
        if point.name not in cases:
            way = min(((victim, mode) for mode in MODES for victim in point.victims), key=used.__getitem__)
            used[way] += 1
            cases[point.name] = Case(point, *way)
    chosen = list(cases.values())
    return [chosen[at : at + size] for at in range(0, len(chosen), size)]


def _deepest() -> Sequence[Point]:
    """Of a place that counts several passes the second first: by then there is more to lose."""
    return sorted(POINTS, key=lambda point: (point.nth != 2, point.nth == 1))


def names() -> set[str]:
    return {point.name for point in POINTS}
