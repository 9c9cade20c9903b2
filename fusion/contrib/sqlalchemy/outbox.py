"""Jobs written in a session's transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from sqlalchemy import MetaData, insert

from fusion.contrib.outbox.row import rows_of
from fusion.contrib.sqlalchemy.tables import outbox_tables
from fusion.middleware import ProducerMiddleware, register

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection
    from sqlalchemy.orm import Session

    from fusion.middleware import Enqueueing

#: The outbox and transaction to which this context writes enqueued jobs.
_current: ContextVar[tuple[Outbox, Any] | None] = ContextVar("fusion_outbox", default=None)


class _Writer(ProducerMiddleware):
    """Writes a call as rows, if a transaction is given."""

    knows_transactions = True

    def before_enqueue(self, enqueueing: Enqueueing) -> None:
        """Defer the call, and write its rows once all hooks have run."""
        current = _current.get()
        if current is None or enqueueing.on_commit is False:
            return
        outbox, transaction = current
        held = enqueueing.hold()
        held.when_made(lambda: transaction.execute(insert(outbox.tables.rows), rows_of(held.chunks)))


_WRITER = _Writer()


class Outbox:
    """The outbox of a database: `outbox = Outbox(Base.metadata)`, once.

    `with outbox(session): Queue("mail").enqueue(send, order.id)` writes the job in the session's transaction, and returns it with its final
    id. It is enqueued once that is committed, and never if it is not. `on_commit=False` bypasses the outbox.
    """

    def __init__(self, metadata: MetaData | None = None, *, schema: str | None = None) -> None:
        """Add the tables to `metadata`, for `create_all` and Alembic."""
        self.tables = outbox_tables(metadata, schema=schema)
        register(_WRITER)

    @contextmanager
    def __call__(self, transaction: Session | Connection) -> Iterator[None]:
        """Write jobs that this thread, or this asyncio task, enqueues inside the block. The enqueueing call raises errors of the database.
        TypeError for an asyncio session or connection, which nothing would await."""
        if iscoroutinefunction(transaction.execute):
            raise TypeError(
                "an outbox writes in a Session or a Connection; in coroutines: await session.run_sync(function), and in the function "
                "`with outbox(session):`"
            )
        token = _current.set((self, transaction))
        try:
            yield
        finally:
            _current.reset(token)
