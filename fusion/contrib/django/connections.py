"""Connections to databases around the run of a job, as Django has them around a request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from asgiref.sync import sync_to_async
from django.db import connections

from fusion.middleware import WorkerMiddleware

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from fusion.context import CurrentJob

log = logging.getLogger("fusion.django")

#: On event loops: what still closes connections.
_closing: set[asyncio.Task[None]] = set()


class Connections(WorkerMiddleware):
    """Before and after each job, what is broken or older than CONN_MAX_AGE is closed, and what stays is tried before its next use: a worker may
    have waited for hours, and the database have been started anew meanwhile."""

    def around_job(self, job: CurrentJob) -> Iterator[None]:
        """A coroutine's queries run in a thread that asgiref keeps for it: that is where its connections are."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            renew()
            open_before = {
                connection.alias for connection in connections.all(initialized_only=True) if connection.in_atomic_block
            }
            try:
                yield
            finally:
                for connection in connections.all(initialized_only=True):
                    if connection.in_atomic_block and connection.alias not in open_before:
                        _give_up(connection, job)
                renew()
            return
        try:
            yield
        finally:
            task = loop.create_task(sync_to_async(renew)())
            _closing.add(task)
            task.add_done_callback(_closing.discard)


def _give_up(connection: BaseDatabaseWrapper, job: CurrentJob) -> None:
    """Close a connection whose transaction a job has left open: what later jobs of this process did would be in it, and never be committed."""
    log.warning(
        "job %s (%s) ended with a transaction of %s open, which is rolled back: it entered atomic() and never left it",
        job.id,
        job.func_name,
        connection.alias,
    )
    connection.in_atomic_block = connection.closed_in_transaction = False
    connection.close()  # the next use makes a new one, with nothing of the old one's state


def renew() -> None:
    """See to the connections of this thread; those in a transaction are left alone."""
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None:
            connection.health_check_enabled = True
            connection.close_if_unusable_or_obsolete()
