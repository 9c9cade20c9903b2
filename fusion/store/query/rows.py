"""What the stored fields of a job say of it: in which state it is, since when, in which queue."""

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
    """The job's state; empty if it has none, or there is no job. A newer version's, or another program's, as it is."""
    return text(row.get("status"))


def queue_of(row: Row) -> str:
    """The queue in which it is, was or is to be."""
    return text(row.get("origin")) or text(row.get("original_queue"))


def entered_at(row: Row) -> datetime | None:
    """When it came into the state that it is in, as far as its record tells; None if it does not.

    What has ended: when it ended. What runs: when its run began. What waits: when it last arrived, or its last run ended, or it was first held.
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
    """The dotted class of its last error; empty if it had none. Of older failures the text of the error tells."""
    return text(row.get("error_class")) or (text(row.get("reason")).partition(":")[0] if state_of(row) == "failed" else "")
