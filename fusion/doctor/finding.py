"""A finding of a check: its level, its subject, the cause, and the command that fixes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from shlex import quote
from typing import Literal

#: `note`: good to know; `warn`: needs a person in working hours; `fail`: needs one now.
Level = Literal["note", "warn", "fail"]
LEVELS: tuple[Level, ...] = ("note", "warn", "fail")


#: Fixes that a client can apply itself, without a shell on a certain machine: stop a job, resume a queue ...
Deed = Literal[
    "resume_queue",
    "resume_fleet",
    "unquiet",
    "stop",
    "cancel",
    "release",
    "requeue",
    "quarantine",
    "run_entry",
    "retry_callbacks",
]


@dataclass(frozen=True, slots=True)
class Remedy:
    """A fix that a program can apply. `names`: what it is applied to (`release`: the key, then jobs; `requeue`: a query)."""

    deed: Deed
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem that a check found.

    `code`: stable, and described in docs/errors.md. `check`: the check that found it. `about`: the queue, worker, sink ...; empty for the
    whole fleet. `what`: a sentence with the cause. `fix`: the command that fixes it; further ones may follow, one a line. `remedy`: the same
    fix as data, if it needs no new process and no other program.
    """

    code: str
    level: Level
    check: str
    about: str
    what: str
    fix: str
    remedy: Remedy | None = None


def worst(findings: Iterable[Finding]) -> Level | None:
    """Return the worst level among these findings; None if there are none."""
    return max((one.level for one in findings), key=LEVELS.index, default=None)


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings, worst first; equal levels keep their order."""
    return sorted(findings, key=lambda one: -LEVELS.index(one.level))


def words(*names: str) -> str:
    """Quote names for a shell. They may come from anyone who can write to Redis, and a user may paste the command."""
    return " ".join(quote(name) for name in names)


def some(names: Iterable[str], most: int = 3) -> str:
    """Return the first names and the number of the others: `a, b, c and 4 more`."""
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def span(seconds: float) -> str:
    """Return a duration in words: `40 s`, `12 min`, `3 h`, `5 d`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{max(seconds, 0.0):.1f} s"


def counted(count: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 job`, `1,200 jobs`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
