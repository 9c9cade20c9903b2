"""Jobs that are written in a session's transaction."""

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

#: What is enqueued here and now is written by this, in that transaction.
_current: ContextVar[tuple[Outbox, Any] | None] = ContextVar("fusion_outbox", default=None)


class _Writer(ProducerMiddleware):
    """Writes a call as rows, if there is a transaction to write it in."""

    knows_transactions = True

    def before_enqueue(self, enqueueing: Enqueueing) -> None:
        """Hold it, and write it instead as soon as it is made."""
        current = _current.get()
        if current is None or enqueueing.on_commit is False:
            return
        outbox, transaction = current
        held = enqueueing.hold()
        held.when_made(lambda: transaction.execute(insert(outbox.tables.rows), rows_of(held.chunks)))


_WRITER = _Writer()


class Outbox:
    """The outbox of a database: `outbox = Outbox(Base.metadata)`, once.

    `with outbox(session): Queue("mail").enqueue(send, order.id)` writes the job in the session's transaction, and returns it with its final id;
    it is enqueued once that is committed, and never if it is not. `on_commit=False` goes past it.
    """

    def __init__(self, metadata: MetaData | None = None, *, schema: str | None = None) -> None:
        """The tables are made part of `metadata`, for `create_all` and Alembic."""
        self.tables = outbox_tables(metadata, schema=schema)
        register(_WRITER)

    @contextmanager
    def __call__(self, transaction: Session | Connection) -> Iterator[None]:
        """Write what this thread, or this task of asyncio, enqueues inside the block. Raises what the database does, from the call that enqueues.
        TypeError for a session or connection of asyncio, which nobody would wait for."""
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
