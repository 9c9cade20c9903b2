"""Select jobs that have not ended: those that wait (for a time, their turn or something else), and those that run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase

from fusion.jobs.failures import CHUNK, add_calls, function_of
from fusion.kernel.timeutil import from_iso
from fusion.store.layout.codec import text
from fusion.store.layout.names import is_reserved
from fusion.store.read.inspector import Inspector

_FIELDS = ("status", "origin", "seq", "func", "concurrency_key", "fair_key", "enqueued_at")


@dataclass(frozen=True, slots=True)
class LiveFilter:
    """Selects jobs that have not ended; None in a field: any. The queue and the function may be wildcards (`tasks.sms.*`); keys
    must be exact. Fusion's own queues are left out. `older_than`, `newer_than`: seconds since it was enqueued."""

    queue: str | None = None
    key: str | None = None
    fair_key: str | None = None
    function: str | None = None
    older_than: float | None = None
    newer_than: float | None = None


@dataclass(frozen=True, slots=True)
class LiveJob:
    """A job that has not ended. `status` is the one in its record; `function` is empty if it can't be read."""

    id: str
    status: str
    queue: str
    function: str


def live_jobs(inspector: Inspector, wanted: LiveFilter, progress: Callable[[int], None] | None = None) -> Iterator[LiveJob]:
    """Yield the selected jobs of those that exist when the call begins. First come jobs that wait for a time or for others, then each queue
    from its end, then running jobs. Removed in this order, no job lets another one move up. Records are read in chunks; entries without a
    job, or with another program's, are left out. `progress` is called after each chunk with the number of jobs read."""
    now = inspector.now()
    ids = [*dict.fromkeys(_ids(inspector, wanted))]
    for start in range(0, len(ids), CHUNK):
        part = ids[start : start + CHUNK]
        rows = inspector.table(part, _FIELDS)
        add_calls(inspector, part, rows)
        for job_id, row in zip(part, rows, strict=True):
            if not isinstance(row, Exception) and row["seq"] is not None and _fits(row, wanted, now):
                yield LiveJob(job_id, text(row["status"]), text(row["origin"]), function_of(row))
        if progress:
            progress(len(part))


def _ids(inspector: Inspector, wanted: LiveFilter) -> Iterator[str]:
    queues = [name for name in inspector.queue_names() if wanted.queue is None or fnmatchcase(name, wanted.queue)]
    yield from reversed(inspector.members("scheduled", "", 0, -1))
    for status in ("deferred", "blocked"):
        for queue in queues:
            yield from reversed(inspector.members(status, queue, 0, -1))
    for queue in queues:
        yield from reversed(inspector.waiting(queue, 0, -1))
    for queue in queues:
        yield from inspector.members("started", queue, 0, -1)


def _fits(row: Mapping[str, bytes | None], wanted: LiveFilter, now: datetime) -> bool:
    queue = text(row["origin"])
    if is_reserved(queue) or (wanted.queue is not None and not fnmatchcase(queue, wanted.queue)):
        return False
    if wanted.key is not None and text(row["concurrency_key"]) != wanted.key:
        return False
    if wanted.fair_key is not None and text(row["fair_key"]) != wanted.fair_key:
        return False
    if wanted.function is not None and not fnmatchcase(function_of(row), wanted.function):
        return False
    at = from_iso(row["enqueued_at"])
    age = None if at is None else (now - at).total_seconds()
    if wanted.older_than is not None and (age is None or age < wanted.older_than):
        return False
    return wanted.newer_than is None or (age is not None and age <= wanted.newer_than)
