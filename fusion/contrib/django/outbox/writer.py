"""What is enqueued in a Django project is written as rows, if `FUSION["OUTBOX"]` says so: True, or the alias of a database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fusion.contrib.django.conf import outbox_alias
from fusion.contrib.django.outbox.models import OutboxRow
from fusion.contrib.outbox.row import rows_of
from fusion.middleware import ProducerMiddleware

if TYPE_CHECKING:
    from fusion.middleware import Enqueueing


class OutboxWriter(ProducerMiddleware):
    """Writes each call as rows: in the transaction that is under way in this thread, or at once where there is none. `on_commit=False` goes
    past it."""

    knows_transactions = True

    def before_enqueue(self, enqueueing: Enqueueing) -> None:
        """Hold it, and write it instead as soon as it is made."""
        using = outbox_alias()
        if using is None or enqueueing.on_commit is False:
            return
        if enqueueing.held is not None:  # until a commit: the row does that
            enqueueing.held.dropped = True
            enqueueing.held = None
        held = enqueueing.hold()
        rows: Any = OutboxRow._base_manager.using(using)
        held.when_made(lambda: rows.bulk_create([OutboxRow(**row) for row in rows_of(held.chunks)]))


#: That of this process.
WRITER = OutboxWriter()
