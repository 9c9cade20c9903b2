"""The crash matrix: at each place where a worker, its fork server or a horse may be, each way in which it may be struck.

A case is three jobs in a queue of their own, in pool mode among many short ones that are claimed ahead, with keys jobs of one concurrency
key with one slot in a queue with a limit, and a worker that stands still when
it gets to the place; it is struck from outside. Several cases are under way at the same time, and one healthy worker finishes what all of
them left.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

FULL = os.environ.get("FUSION_TEST_CRASH") == "full"
#: Of the modes those of one executor; all if none is named.
EXECUTOR = os.environ.get("FUSION_TEST_CRASH_EXECUTOR", "")

#: SIGKILL of the job's process, of the worker, of both; SIGSTOP for twice the lease.
VICTIMS = ("horse", "worker", "both", "freeze")


#: What a job has called when its task is over.
AT_END = ("callback", "hook")


@dataclass(frozen=True)
class Point:
    """A failpoint. `nth`: which of its passes counts. `held`: which job, the `first` or the `last`, runs until the strike; with the first
    nothing counts before that runs.

    `drive`: what has to happen to get there: `quit` (while a job runs), `ring` (a token comes when no job is taken any more), `overdue` (jobs
    expire in a queue that nobody serves), `bell` (the jobs come once the worker waits for some), `suspect` (a job that was lost too often
    comes first), `wildcard` (the queue is served by one), `callback` and `hook` (a job has such a thing called when its task is over).
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
        name = self.name if self.nth == 1 else f"{self.name}@{self.nth}"
        return f"{name} for a doorbell" if self.drive == "bell" else f"{name}, a {self.drive}" if self.drive in AT_END else name


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
    Point("doorbell.token", drive="bell"),
    Point("turn.sent", drive="bell"),
    Point("claim.after_reply", drive="bell"),
    Point("claim.after_reply"),
    Point("claim.after_reply", 2),
    Point("dispatch.after"),
    Point("dispatch.after", 3),
    Point("handout.frame"),
    Point("handout.frame", 3),
    Point("outcome.received"),
    Point("outcome.received", 2),
    Point("fork.ask", victims=_NO_HORSE_YET),
    Point("fork.ask", 3),
    *_around("extend", held="first"),
    *_around("reap", held="first"),
    *_around("prune", held="first"),
    *_around("promote", held="first"),
    *_around("expire", held="first", drive="overdue"),
    *_around("clean", held="first"),
    *_around("sample", held="first"),
    *_around("survey", drive="wildcard", victims=_NO_HORSE_YET),
    *_around("hold_probation", held="first", drive="suspect"),
    *_around("save_meta", held="last"),
    *_around("log_event", held="last"),
    *_around("report", held="last"),
    *_around("write_logs", held="last"),
    *_around("note_history", held="last"),
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
    Point("horse.outcome_stands", drive="callback"),
    Point("horse.outcome_stands", drive="hook"),
    Point("horse.before_outcome"),
    Point("horse.after_outcome"),
)

#: Deep in a crowd of short jobs, and where only such are: `ahead.*`.
AMID_MANY = (
    Point("ahead.given"),
    Point("ahead.taken_back"),
    Point("ahead.begun"),
    Point("ahead.told"),
    *_around("turn", 12),
    Point("turn.sent"),
    Point("turn.sent", 12),
    Point("claim.after_reply", 20),
    Point("dispatch.after", 20),
    Point("outcome.received", 20),
    Point("fork.ask", 5, victims=VICTIMS),
    Point("fork.before", 5, victims=_FORK_SERVER),
    Point("fork.after", 5, victims=_FORK_SERVER),
    Point("horse.before_task", 8),
    Point("horse.after_task", 8),
    Point("horse.before_outcome", 8),
    Point("horse.after_outcome", 8),
    Point("ahead.given", 12),
    Point("ahead.taken_back", 3),
)


#: Where slots of a concurrency key and of a queue's limit are taken, kept and handed on. A job that waits to run alone keeps its key's.
KEYED = tuple(point for point in POINTS if point.drive != "suspect")
_OF_SLOTS = ("turn.before", "turn.after", "claim.after_reply", "outcome.received", "horse.before_task", "horse.after_task", "reap.after",
             "prune.after", "promote.after", "deregister.after", "extend.before")  # fmt: skip


#: Where many jobs run at once in a process. Of processes there is one, so that few are forked.
CROWDED = tuple(
    replace(point, victims=point.victims[1:]) if point.name.startswith("deregister") else point  # at a cold end none is left
    for point in POINTS
    if point.nth < 3 and not (point.name == "fork.ask" and point.nth > 1)
)
_OF_CROWDS = (
    "turn.after",
    "handout.frame",
    "outcome.received",
    "fork.after",
    "horse.before_task",
    "horse.outcome_stands",
    "horse.before_outcome",
)


class Mode(NamedTuple):
    """A way to start a worker, the places it can be struck at, and those of them that the short run is about. `keyed`: its jobs have a key."""

    name: str
    points: tuple[Point, ...]
    short: tuple[Point, ...]
    args: tuple[str, ...] = ()
    keyed: bool = False

    @property
    def executor(self) -> str:
        return self.name if self.name in ("pool", "thread", "asyncio") else "process"

    @property
    def ahead(self) -> bool:
        """Whether short jobs are claimed ahead."""
        return "--horses" in self.args

    @property
    def suffix(self) -> str:
        """What names of cases end in."""
        return "" if self is MODES[0] else f", {self.name}"


MODES = (
    Mode("process per job", POINTS, POINTS),
    Mode("pool", (*POINTS, *AMID_MANY), AMID_MANY, ("--horses", "2")),
    Mode("keys", KEYED, tuple(point for point in KEYED if point.name in _OF_SLOTS), keyed=True),
    *(
        Mode(
            executor,
            CROWDED,
            tuple(point for point in CROWDED if point.name in _OF_CROWDS),
            ("--executor", executor, number, "2"),
        )
        for executor, number in (("thread", "--threads"), ("asyncio", "--concurrency"))
    ),
)


class Case(NamedTuple):
    point: Point
    victim: str
    mode: Mode

    def __str__(self) -> str:
        return f"{self.point}, {self.victim}{self.mode.suffix}"


def product() -> list[list[Case]]:
    """All there is, a place at a time."""
    modes = [mode for mode in MODES if EXECUTOR in ("", mode.executor)]
    return [[Case(point, victim, mode) for victim in point.victims] for mode in modes for point in mode.points]


def subset(size: int) -> list[list[Case]]:
    """Of each mode each place once, in groups of `size`, struck in the way that came up least so far: all come up."""
    used: Counter[str] = Counter()
    groups = []
    for mode in MODES:
        cases: dict[str, Case] = {}
        for point in _deepest(mode.short):
            name = str(point) if point.drive in AT_END else point.name
            if name not in cases:
                victim = min(point.victims, key=used.__getitem__)
                used[victim] += 1
                cases[name] = Case(point, victim, mode)
        chosen = list(cases.values())
        groups += [chosen[at : at + size] for at in range(0, len(chosen), size)]
    return groups


def _deepest(points: Sequence[Point]) -> Sequence[Point]:
    """Of a place that counts several passes the second first: by then there is more to lose."""
    return sorted(points, key=lambda point: (point.nth != 2, point.nth == 1))


def names() -> set[str]:
    return {point.name for mode in MODES for point in mode.points}
