"""Facts from the stored fields of a job: its state, since when, and its queue."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from fusion.kernel.timeutil import EPOCH, from_iso
from fusion.status import TERMINAL
from fusion.store.layout.codec import number, text

Row = Mapping[str, bytes | None]

#: What `state_of`, `entered_at` and `queue_of` read.
STATE_FIELDS = frozenset({"status"})
ENTERED_FIELDS = frozenset({"status", "created_at", "enqueued_at", "started_at", "ended_at", "held_since"})
QUEUE_FIELDS = frozenset({"origin", "original_queue"})
ERROR_FIELDS = frozenset({"error_class", "error_bases", "reason", "status"})
#: A clock in ms since 1970 of the year 9999.
_LAST_MS = 253_370_764_800_000


def state_of(row: Row) -> str:
    """Return the job's state; empty if it has none, or there is no job. A state of a newer version, or of another program, is returned as it
    is."""
    return text(row.get("status"))


def queue_of(row: Row) -> str:
    """Return the queue in which it is, was or is to be."""
    return text(row.get("origin")) or text(row.get("original_queue"))


def entered_at(row: Row) -> datetime | None:
    """Return when the job came into its present state, as far as its record shows; None if it does not.

    An ended job: when it ended. A running one: when its run began. A waiting one: when it last arrived, its last run ended, or it was first
    held.
    """
    state = text(row.get("status"))
    if state == "started":
        return from_iso(row.get("started_at"))
    ended = from_iso(row.get("ended_at"))
    if state in TERMINAL:
        return ended
    came = [ended, from_iso(row.get("enqueued_at")) or from_iso(row.get("created_at"))]
    if state == "blocked" and 0 < (held := number(row.get("held_since"))) < _LAST_MS:
        came.append(EPOCH + timedelta(milliseconds=held))
    return max((moment for moment in came if moment is not None), default=None)


def error_of(row: Row) -> str:
    """Return the dotted class of its last error; empty if it had none. For older failures it is read from the text of the error."""
    return text(row.get("error_class")) or (text(row.get("reason")).partition(":")[0] if state_of(row) == "failed" else "")
