"""Check if a viewer who is restricted to some queues may see a job."""

from __future__ import annotations

from collections.abc import Mapping

from fusion.kernel.scope import Scope
from fusion.store.layout.codec import text

#: Fields that name a job's queues.
QUEUES = ("origin", "original_queue")


def seen(scope: Scope, row: Mapping[str, bytes | None] | Exception) -> bool:
    """Return True if this scope may see a job, given a row with at least the fields `QUEUES`: its present queue, and the one to which it
    returns. A job that can't be read belongs to no queue."""
    if scope.all:
        return True
    if isinstance(row, Exception) or not row["origin"]:
        return False
    return all(scope.allows(text(row[name])) for name in QUEUES if row[name])
