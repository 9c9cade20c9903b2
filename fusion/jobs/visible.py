"""Whether somebody who sees some queues alone may see a job."""

from __future__ import annotations

from collections.abc import Mapping

from fusion.kernel.scope import Scope
from fusion.store.layout.codec import text

#: What tells of which queue a job is.
QUEUES = ("origin", "original_queue")


def seen(scope: Scope, row: Mapping[str, bytes | None] | Exception) -> bool:
    """Say whether a job may be seen of which at least `QUEUES` was read: the queue that it is in, and the one to which it goes back. One of
    which nothing can be read belongs to no queue."""
    if scope.all:
        return True
    if isinstance(row, Exception) or not row["origin"]:
        return False
    return all(scope.allows(text(row[name])) for name in QUEUES if row[name])
