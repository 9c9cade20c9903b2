"""Jobs that wait for a time, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from fusion.jobs.attempts import parse_history
from fusion.kernel import defaults
from fusion.kernel.timeutil import from_iso
from fusion.store.layout.codec import number

if TYPE_CHECKING:
    from fusion.store.read.inspector import Inspector

#: Fields from which a line of the list is made.
_FIELDS = ("status", "origin", "func", "description", "deliveries", "retryCount", "started_at", "lost", "reason", "history")


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job that waits for a time. `kind`: the cause in a few words; `reason`: the stored reason, which may quote the task's arguments."""

    id: str
    due: datetime
    queue: str
    function: str
    description: str
    kind: str
    reason: str


def waiting_jobs(inspector: Inspector, found: Sequence[tuple[str, datetime]]) -> list[WaitingJob]:
    """Read these jobs, each given with the time when it is due. A job that can't be read, or is no longer scheduled, is listed as such."""
    rows = inspector.table([job_id for job_id, _ in found], _FIELDS) if found else []
    return [_job(job_id, due, _row(row)) for (job_id, due), row in zip(found, rows, strict=True)]


def _job(job_id: str, due: datetime, row: Mapping[str, str]) -> WaitingJob:
    kind, reason = _why(row)
    function = row["func"] or row["description"].partition("(")[0]
    return WaitingJob(job_id, due, row["origin"], function, row["description"], kind, reason)


def _row(found: Mapping[str, bytes | None] | Exception) -> dict[str, str]:
    if isinstance(found, Exception):
        return {**dict.fromkeys(_FIELDS, ""), "status": "broken"}
    return {name: "" if value is None else value.decode("utf-8", "replace") for name, value in found.items()}


def _why(row: Mapping[str, str]) -> tuple[str, str]:
    if row["status"] != "scheduled":  # the entry is dropped or reported when it is due
        return "a stale entry", f"the job is {row['status']}" if row["status"] else "there is no such job"
    if not row["deliveries"]:
        return "enqueued for then", ""
    # The last line of the history tells the outcome, if it belongs to the last run. A hold writes no line.
    history = parse_history(row["history"])
    if not history or history[-1].start != from_iso(row["started_at"]):
        return "held back", row["reason"]
    if history[-1].outcome == "lost":
        return f"lost {row['lost']} times", row["reason"]
    start = defaults.RETRY_COUNT_START
    return f"retry {number(row['retryCount'], start) - start}", row["reason"]
