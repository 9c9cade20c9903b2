"""Jobs and queues as the API shows them. Never arguments: nobody who may only look learns what was sent to whom."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from redis import Redis

from fusion.exceptions import DeserializationError, NoSuchJobError
from fusion.job import Job
from fusion.jobs.attempts import Attempt
from fusion.kernel.compression import plain
from fusion.kernel.timeutil import to_iso
from fusion.store.access import inspector_of
from fusion.store.layout.codec import text
from fusion.store.read.inspector import QueueInfo
from fusion.store.read.totals import Step, summary

#: Bytes of a result or a reason that are shown.
CUT = 4096

# Neither `data` nor `result`, which may be large.
_FIELDS = (
    *("status", "origin", "original_queue", "priority", "log_tag", "created_at", "enqueued_at", "started_at", "ended_at"),
    *("attempts", "lost", "deliveries", "retryCount", "worker_name", "reason", "error_class", "error_frame", "quarantined"),
    *("concurrency_key", "progress"),
)
_DETAILS = ("reason", "result", "callback_error")


def job_view(connection: Redis, job_id: str, *, details: bool = False) -> dict[str, Any]:
    """A job as it stands. NoSuchJobError if it is gone. `details`: also its result, its reason, what its callback raised and its
    earlier runs, which may quote what the task was given."""
    inspector = inspector_of(connection)
    names = (*_FIELDS, *_DETAILS, "history") if details else _FIELDS
    found = dict(zip(names, inspector.fields(job_id, *names), strict=True))
    if found["status"] is None:
        raise NoSuchJobError(f"no job {job_id!r}: it never existed, was deleted, or its result_ttl is over")
    job = Job(job_id, {name: value for name, value in found.items() if value is not None}, connection)
    status = text(found["status"])
    view: dict[str, Any] = {
        "id": job_id,
        "status": status,
        "queue": job.origin,
        "original_queue": job.original_queue,
        "priority": job.priority,
        "log_tag": job.log_tag,
        "concurrency_key": job.concurrency_key or None,
        "created_at": _iso(job.created_at),
        "enqueued_at": _iso(job.enqueued_at),
        "scheduled_at": _iso(job.scheduled_at()) if status == "scheduled" else None,
        "started_at": _iso(job.started_at),
        "ended_at": _iso(job.ended_at),
        "attempts": job.attempts,
        "lost": job.lost,
        "deliveries": job.deliveries,
        "retry_count": job.retry_count,
        "worker": job.worker_name,
        "quarantined": bool(job.quarantined),
        "error": {"class": job.error_class, "at": job.error_frame} if job.error_class else None,
        "progress": job.progress and job.progress.document(note=details),
    }
    if details:
        view |= {name: _cut(_text_of(found[name]) if name == "result" else found[name]) for name in _DETAILS}
        view["runs"] = [_run_view(attempt) for attempt in reversed(job.attempt_history)]
    return view


def _run_view(attempt: Attempt) -> dict[str, Any]:
    """A run that did not finish."""
    error = attempt.error.encode()
    return {
        "outcome": attempt.outcome,
        "started_at": _iso(attempt.start),
        "ended_at": _iso(attempt.end),
        "worker": attempt.worker,
        "error": _cut(error) if error else None,
    }


def _text_of(result: bytes | None) -> bytes | None:
    """A result as text, uncompressed; one that is damaged as it is stored, and so a pickle."""
    try:
        return result and plain(result)
    except DeserializationError:
        return result


def _cut(raw: bytes | None) -> dict[str, Any] | None:
    """As text, since it may be cut anywhere, and may be a pickle."""
    if raw is None:
        return None
    return {"text": raw[:CUT].decode("utf-8", "replace"), "bytes": len(raw), "cut": len(raw) > CUT}


def queue_view(info: QueueInfo, now: datetime) -> dict[str, Any]:
    """A queue as far as there is something to count."""
    return {
        "name": info.name,
        "queue_length": info.length,
        "queued_count": info.count,
        "active_count": info.started,
        "max_concurrent": info.bounds.limit,
        "rate": info.bounds.rate and str(info.bounds.rate),
        "rate_limited": info.bounds.closed,
        "oldest_enqueued_at": _iso(info.oldest),
        "by_priority": {"high": info.high, "moderate": info.moderate, "low": info.low},
        "inbox": info.inbox,
        "finished_count": info.finished,
        "canceled_count": info.canceled,
        "stopped_count": info.stopped,
        "blocked_count": info.blocked,
        "paused": info.paused,
        "pause": info.pause and info.pause.document(now),
        "max_queue_length": info.max_length,
        "queue_timeout": info.timeout,
        "problem": info.error or None,
        "last_updated": _iso(now),
    }


def history_view(steps: list[Step]) -> dict[str, Any]:
    """Steps that have something to tell (`waiting`: the most that waited, and longest, by priority), and percentiles of wait and run over
    them all, in seconds."""
    return {
        "history": [
            {"at": to_iso(step.at), **step.counts, **({"waiting": step.waiting()} if step.depths else {})}
            for step in steps
            if step.counts or step.depths
        ],
        "seconds": {str(priority): times for priority, times in summary(steps).items()},
    }


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else to_iso(moment)
