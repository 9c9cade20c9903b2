"""Writes enqueued jobs as rows in a Django project, if `FUSION["OUTBOX"]` is True or the alias of a database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fusion.contrib.django.conf import outbox_alias
from fusion.contrib.django.outbox.models import OutboxRow
from fusion.contrib.outbox.row import rows_of
from fusion.middleware import ProducerMiddleware

if TYPE_CHECKING:
    from fusion.middleware import Enqueueing


class OutboxWriter(ProducerMiddleware):
    """Writes each call as rows: in the open transaction of this thread, or at once if there is none. `on_commit=False` bypasses it."""

    knows_transactions = True

    def before_enqueue(self, enqueueing: Enqueueing) -> None:
        """Defer the call, and write its rows once all hooks have run."""
        using = outbox_alias()
        if using is None or enqueueing.on_commit is False:
            return
        if enqueueing.held is not None:  # deferred until a commit: the row does that
            enqueueing.held.dropped = True
            enqueueing.held = None
        held = enqueueing.hold()
        rows: Any = OutboxRow._base_manager.using(using)
        held.when_made(lambda: rows.bulk_create([OutboxRow(**row) for row in rows_of(held.chunks)]))


#: The instance of this process.
WRITER = OutboxWriter()
