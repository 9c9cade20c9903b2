"""What a check found: how bad it is, what it is about, why, and the command that mends it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from shlex import quote
from typing import Literal

#: `note`: good to know; `warn`: needs a person in working hours; `fail`: needs one now.
Level = Literal["note", "warn", "fail"]
LEVELS: tuple[Level, ...] = ("note", "warn", "fail")


#: What can be done from here, without a shell on the right machine: a job is stopped, a queue resumed ...
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
    """What its command does, in parts: to what it is done (`release`: the key, then jobs; `requeue`: a query)."""

    deed: Deed
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """`check`: which one found it. `about`: the queue, worker, sink ..., empty for all of them. `what`: a sentence with the cause. `fix`: what
    mends it, the command first; others may follow, one a line. `remedy`: the same where no process has to be started for it and no other
    program told."""

    level: Level
    check: str
    about: str
    what: str
    fix: str
    remedy: Remedy | None = None


def worst(findings: Iterable[Finding]) -> Level | None:
    """The worst level among these; None if there is none."""
    return max((one.level for one in findings), key=LEVELS.index, default=None)


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first, else as they came."""
    return sorted(findings, key=lambda one: -LEVELS.index(one.level))


def words(*names: str) -> str:
    """Names as a shell takes them: who writes to Redis may have chosen them, and somebody may paste the command."""
    return " ".join(quote(name) for name in names)


def some(names: Iterable[str], most: int = 3) -> str:
    """`a, b, c and 4 more`."""
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def span(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h`, `5 d`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{max(seconds, 0.0):.1f} s"


def counted(count: int, one: str, many: str = "") -> str:
    """`1 job`, `1,200 jobs`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
