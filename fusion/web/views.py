"""Jobs and queues as the API shows them. No arguments, but where they are asked for: nobody who may only look learns what was sent to whom."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fusion.exceptions import DeserializationError
from fusion.jobs.attempts import Attempt
from fusion.jobs.sheet import Sheet
from fusion.jobs.sheet_document import document
from fusion.kernel.compression import plain
from fusion.kernel.timeutil import to_iso
from fusion.store.read.inspector import QueueInfo
from fusion.store.read.totals import Step, summary

#: Bytes of a result or a reason that are shown.
CUT = 4096

_DETAILS = ("reason", "result", "callback_error")


def job_view(sheet: Sheet, *, result: bool, arguments: bool, trace: bool) -> dict[str, Any]:
    """A job as it stands. `result`: with its result, its reason, what its callback raised and its earlier runs, as they are: they may quote what
    the task was given. `arguments`: with that itself, and texts of errors, masked. `trace`: with its traceback, masked."""
    view = document(sheet, details=arguments, trace=trace)
    if result:
        row = sheet.facts.row
        view |= {name: _cut(_text_of(row.get(name)) if name == "result" else row.get(name)) for name in _DETAILS}
        view["runs"] = [_run_view(attempt) for attempt in reversed(sheet.attempt_history)]
        view["progress"] = sheet.progress and sheet.progress.document()
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
        "oldest_by_priority": {name: _iso(at) for name, at in zip(("low", "moderate", "high"), info.heads, strict=True)},
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
