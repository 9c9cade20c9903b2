"""What goes into a Broker's methods and what comes out of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to accept. `ttl` in seconds: older than that at its claim, it expires instead of running."""

    id: str
    priority: int
    fields: Mapping[str, Any]
    front: bool = False
    ttl: float | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """What became of one execution: finished, failed, retry, held, release or lost.

    `elapsed` seconds from hand-out to outcome; `age` seconds since the outcome was known; `delay` seconds until a retry or another look.
    `attempt`: what is known of an execution that did not finish, for the job's history (`signal`, `exit_code`, `maxrss` in KiB, `oom`).
    """

    kind: str
    job_id: str
    execution_id: str
    elapsed: float = 0.0
    age: float = 0.0
    delay: float = 0.0
    reason: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    attempt: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A job that is this worker's until its lease ends, with the fields a run needs."""

    queue: str
    id: str
    execution_id: str
    fields: dict[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Turn:
    """The answer to a turn. `next_in`: seconds to the next due job, None if none is scheduled."""

    status: str
    answers: list[str]
    jobs: list[Claimed]
    bad: list[tuple[str, str]]
    again: bool
    next_in: float | None
