"""Walks among jobs that know each other, drawn by plain chance: thick where few jobs have many parents and lives, and as short as they get when one
fails. `walk` draws in a way of its own, which rarely comes to where a job lives again while others still wait for it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import redis

from tests.faults.model.scripts import Mistake
from tests.faults.model.tied import BATCHES, DAY, QUEUES, TiedMachine
from tests.kit.promises import PromiseBroken

#: A call of the machine: a rule and what is drawn for it.
Step = tuple[str, dict[str, Any]]
_KINDS = ("finished",) * 4 + ("failed", "failed", "retry", "release", "later", "lost", "stopped")


def _enqueue(chance: random.Random, jobs: int) -> dict[str, Any]:
    bound = chance.random()
    return {
        "queue": chance.choice(QUEUES),
        "number": chance.randrange(jobs),
        "parents": chance.sample(range(jobs), chance.choice((0, 1, 1, 2, 3))),
        "signs": chance.choices(("", "", "?", "~"), k=3),
        "unique": chance.choice("uv") if bound < 0.15 else "",
        "until": chance.choice(("end", "end", "start")),
        "way": chance.choice(("skip", "replace", "raise")),
        "batch": chance.choice(BATCHES) if 0.1 < bound < 0.3 else "",
        "key": "k" if 0.25 < bound < 0.4 else "",
        "discard": chance.random() < 0.5,
        "delay": chance.choice((None, None, None, None, 5, 40)),
        "ttl": chance.choice((None, None, 40)),
        "more": chance.random() < 0.3,
    }


def _turn(chance: random.Random, jobs: int) -> dict[str, Any]:
    return {
        "name": chance.choice("AB"),
        "kinds": chance.choices(_KINDS, k=chance.randint(0, 2)),
        "slots": chance.randint(0, 2),
        "answered": chance.random() < 0.8,
        "delay": chance.choice((0, 0, 20)),
    }


_DRAWN: dict[str, tuple[int, Callable[[random.Random, int], dict[str, Any]]]] = {
    "enqueue": (30, _enqueue),
    "turn": (28, _turn),
    "person": (12, lambda chance, jobs: {"number": chance.randrange(jobs), "what": chance.choice(("stop", "cancel", "delete", "requeue"))}),
    "release": (7, lambda chance, jobs: {"limit": chance.choice((1, 1, 50))}),
    "time": (8, lambda chance, jobs: {"ms": chance.choice((1, 6_000, 31_000, 65_000, 2 * DAY)),
                                      "what": chance.choice(("promote", "expire", "clean", "tend_batches"))}),
    "resend": (4, lambda chance, jobs: {"back": chance.randrange(13)}),
    "empty": (3, lambda chance, jobs: {"queue": chance.choice(QUEUES), "limit": chance.choice((1, 500))}),
    "prune": (2, lambda chance, jobs: {"name": chance.choice("AB")}),
    "open_batch": (4, lambda chance, jobs: {"batch": chance.choice(BATCHES), "parent": chance.choice(("", *BATCHES)),
                                            "calls": chance.random() < 0.5}),
    "end_batch": (2, lambda chance, jobs: {"batch": chance.choice(BATCHES), "cancel": chance.random() < 0.3, "limit": chance.choice((1, 50))}),
}  # fmt: skip


def draw(seed: int, steps: int, jobs: int) -> list[Step]:
    """The calls of a walk among this many jobs."""
    chance = random.Random(seed)
    names = chance.choices(list(_DRAWN), [weight for weight, _ in _DRAWN.values()], k=steps)
    return [(name, _DRAWN[name][1](chance, jobs)) for name in names]


def fault(conn: redis.Redis, steps: Sequence[Step], mistakes: tuple[Mistake, ...] = ()) -> str:
    """What these calls come to that is wrong, or nothing."""
    state = type("TiedMachine", (TiedMachine,), {"conn": conn, "mistakes": mistakes})()
    try:
        for name, drawn in steps:
            getattr(state, name)(**drawn)
        state.teardown()
    except AssertionError as error:
        return str(error) or "an assertion"
    return ""


def shortened(conn: redis.Redis, steps: Sequence[Step], mistakes: tuple[Mistake, ...] = ()) -> list[Step]:
    """As few of the calls of a walk that fails as still do."""
    left, size = list(steps), max(1, len(steps) // 2)
    while size:
        at = 0
        while at < len(left):
            fewer = left[:at] + left[at + size :]
            if fault(conn, fewer, mistakes):
                left = fewer
            else:
                at += size
        size //= 2
    return left


def wander(conn: redis.Redis, seed: int, steps: int = 60, jobs: int = 5) -> None:
    """PromiseBroken with the calls that it takes, if something is wrong on the way."""
    drawn = draw(seed, steps, jobs)
    if fault(conn, drawn):
        calls = shortened(conn, drawn)
        lines = "".join(
            f"\n    state.{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})" for name, given in calls
        )
        raise PromiseBroken(f"{fault(conn, calls)}{lines}")
