"""What runs and what failed last as JSON shows it, without anything that a job was given."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from fusion.documents import times

if TYPE_CHECKING:
    from fusion.jobs.moment import FailedJob, RunningJob


def running(job: RunningJob, at: datetime) -> dict[str, Any]:
    """A job that runs."""
    return {
        "id": job.id,
        "queue": job.queue,
        "function": job.function,
        "worker": job.worker,
        "started_at": times.iso(job.started_at),
        "seconds": times.age(at, job.started_at),
        "timeout": job.timeout,
        "done": job.done,
        "attempt": job.attempt,
    }


def failed(job: FailedJob) -> dict[str, Any]:
    """A job that has failed."""
    return {"id": job.id, "queue": job.queue, "function": job.function, "error": job.error, "at": times.iso(job.at)}
