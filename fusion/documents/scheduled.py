"""Jobs that wait for a time, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fusion.jobs.attempts import parse_history
from fusion.kernel import defaults
from fusion.kernel.redaction import masked_text
from fusion.kernel.timeutil import from_iso
from fusion.store.layout.codec import number

if TYPE_CHECKING:
    from fusion.store.read.inspector import Inspector

#: What a line of the list is made of.
_FIELDS = ("status", "origin", "func", "description", "deliveries", "retryCount", "started_at", "lost", "reason", "history")


def rows(inspector: Inspector, job_ids: Sequence[str]) -> list[dict[str, str]]:
    """What is read of these jobs; the status of one that can't be read is `broken`."""
    return [_row(row) for row in inspector.table(job_ids, _FIELDS)] if job_ids else []


def _row(found: Mapping[str, bytes | None] | Exception) -> dict[str, str]:
    if isinstance(found, Exception):
        return {**dict.fromkeys(_FIELDS, ""), "status": "broken"}
    return {name: "" if value is None else value.decode("utf-8", "replace") for name, value in found.items()}


def why(row: Mapping[str, str]) -> str:
    """What it waits for: what it is, and behind a colon the reason, masked, as it may quote what the task was given."""
    if row["status"] != "scheduled":  # it is dropped or reported when it is due
        return f"a stale entry: the job is {row['status']}" if row["status"] else "a stale entry: there is no such job"
    if not row["deliveries"]:
        return "enqueued for then"
    reason = masked_text(row["reason"])
    # What became of its last run, if the history's last line is of that one; a hold leaves none.
    history = parse_history(row["history"])
    if not history or history[-1].start != from_iso(row["started_at"]):
        return f"held back: {reason}"
    if history[-1].outcome == "lost":
        return f"lost {row['lost']} times: {reason}"
    start = defaults.RETRY_COUNT_START
    return f"retry {number(row['retryCount'], start) - start}: {reason}"
