"""The jobs that run now, and those that failed last. Only a bounded number is read, however many there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from fusion.jobs.failures import add_calls, function_of
from fusion.kernel.progress import parse_progress
from fusion.kernel.scope import Scope
from fusion.kernel.timeutil import from_iso
from fusion.store.layout.calls import about_of
from fusion.store.layout.codec import text
from fusion.store.read.inspector import Inspector, WorkerInfo

_RUNNING = ("status", "origin", "func", "description", "started_at", "timeout", "progress", "attempts")
#: What tells which of them ran longest: of many only these fields are read.
_STARTS = ("status", "origin", "started_at")
_FAILED = ("status", "origin", "original_queue", "func", "description", "error_class", "error_frame", "ended_at", "quarantined")


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that a worker reports as running. `done`: its progress in percent; None if it reports none."""

    id: str
    worker: str
    queue: str
    function: str
    started_at: datetime | None
    timeout: float | None
    done: float | None
    attempt: int
    #: Its description, if that is not the function.
    about: str = ""

    def share(self, at: datetime) -> float:
        """Return the share of its timeout that it has used; 0 without a timeout."""
        if self.started_at is None or not self.timeout or self.timeout < 0:
            return 0.0
        return (at - self.started_at).total_seconds() / self.timeout


@dataclass(frozen=True, slots=True)
class FailedJob:
    """A failed job, without the message of its error."""

    id: str
    queue: str
    function: str
    error: str
    frame: str
    at: datetime | None
    quarantined: bool
    #: Its description, if that is not the function.
    about: str = ""


def running_jobs(inspector: Inspector, workers: Sequence[WorkerInfo], limit: int = 1000) -> list[RunningJob]:
    """Return up to `limit` jobs that these workers run, the longest-running first. Needs two round trips at most."""
    pairs = [(job_id, worker.name) for worker in workers for job_id in worker.jobs][:limit]
    ids = [job_id for job_id, _ in pairs]
    rows = inspector.table(ids, _RUNNING) if ids else []
    add_calls(inspector, ids, rows)
    found = []
    for (job_id, worker), row in zip(pairs, rows, strict=True):
        if isinstance(row, Exception) or text(row["status"]) != "started":
            continue
        far = parse_progress(text(row["progress"]))
        started, attempts = from_iso(row["started_at"]), text(row["attempts"])
        found.append(
            RunningJob(
                job_id,
                worker,
                text(row["origin"]),
                function_of(row),
                started,
                _seconds(row["timeout"]),
                far.percent if far else None,
                int(attempts) if attempts.isascii() and attempts.isdecimal() and len(attempts) < 10 else 0,
                about_of(row),
            )
        )
    return sorted(found, key=lambda job: (job.started_at is None, job.started_at or 0, job.id))


def longest_running(
    inspector: Inspector, workers: Sequence[WorkerInfo], scope: Scope, most: int, shown: int
) -> tuple[list[RunningJob], int]:
    """Return up to `shown` jobs that these workers run, the longest-running first, and how many run. At most `most` are looked at, and jobs of
    queues outside the scope are left out. Needs three round trips at most."""
    pairs = [(job_id, worker) for worker in workers for job_id in worker.jobs][:most]
    rows = inspector.table([job_id for job_id, _ in pairs], _STARTS) if pairs else []
    found = [
        (row["started_at"] or b"~", job_id, worker)
        for (job_id, worker), row in zip(pairs, rows, strict=True)
        if not isinstance(row, Exception) and row["status"] == b"started" and scope.allows(text(row["origin"]))
    ]
    first = sorted(found, key=lambda one: one[:2])[:shown]
    jobs = running_jobs(inspector, [replace(worker, jobs=(job_id,)) for _, job_id, worker in first])
    return [job for job in jobs if scope.allows(job.queue)], len(found)  # an id may have come to another queue meanwhile


def _seconds(stored: bytes | None) -> float | None:
    try:
        return float(text(stored))
    except ValueError:
        return None


def failed_jobs(inspector: Inspector, ids: Sequence[str]) -> list[FailedJob]:
    """Read these failed jobs. Ids without a job, and jobs that are no longer failed, are left out."""
    rows = inspector.table(ids, _FAILED) if ids else []
    add_calls(inspector, ids, rows)
    return [
        FailedJob(
            job_id,
            text(row["original_queue"]) or text(row["origin"]),
            function_of(row),
            text(row["error_class"]) or "unknown",
            text(row["error_frame"]),
            from_iso(row["ended_at"]),
            bool(row["quarantined"]),
            about_of(row),
        )
        for job_id, row in zip(ids, rows, strict=True)
        if not isinstance(row, Exception) and text(row["status"]) == "failed"
    ]
