"""Handles database connections around the run of a job, as Django does around a request."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from asgiref.sync import SyncToAsync
from django.db import connections
from django.db.backends.signals import connection_created

from fusion.context import get_current_job
from fusion.middleware import WorkerMiddleware

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from fusion.context import CurrentJob

log = logging.getLogger("fusion.django")

#: Ids of the jobs that run in this process.
_running: set[str] = set()


class Connections(WorkerMiddleware):
    """Before and after each job, closes connections that are broken or older than CONN_MAX_AGE, and has the others tested before their next
    use. A worker may have waited for hours, while the database was restarted. A transaction that a job has left open is rolled back."""

    def around_job(self, job: CurrentJob) -> Iterator[None]:
        """Renew connections before and after the task. An event loop has none: a coroutine's queries run in a thread of asgiref's."""
        renew()
        open_before = {connection.alias for connection in connections.all(initialized_only=True) if connection.in_atomic_block}
        _running.add(job.id)
        try:
            yield
        finally:
            _running.discard(job.id)
            for connection in connections.all(initialized_only=True):
                if connection.in_atomic_block and connection.alias not in open_before:
                    opener = _opener_of(connection) or (job.id, job.func_name)
                    if opener[0] not in _running:
                        _give_up(connection, *opener)
            renew()
            if getattr(shared := SyncToAsync.single_thread_executor, "_threads", True):  # it has run something before
                with suppress(RuntimeError):  # the process is shutting down
                    shared.submit(_renew_shared)  # runs after this job's work there, before that of the next jobs


def _renew_shared() -> None:
    """Renew the connections of the thread that all coroutines of this process share. A transaction there is left alone if a job runs."""
    for connection in connections.all(initialized_only=True):
        opener = _opener_of(connection)
        if connection.in_atomic_block and opener is not None and opener[0] not in _running:
            _give_up(connection, *opener)
    renew()


def _give_up(connection: BaseDatabaseWrapper, job_id: str, name: str) -> None:
    """Close a connection whose transaction a job has left open: later jobs of this process would work in it, and it would never be committed."""
    log.warning(
        "job %s (%s) ended with a transaction of %s open, which is rolled back: it entered atomic() and never left it",
        job_id,
        name,
        connection.alias,
    )
    connection.in_atomic_block = connection.closed_in_transaction = False
    connection.close()  # the next use opens a new one, without the old one's state


def renew() -> None:
    """Renew the connections of this thread; those in a transaction are left alone."""
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None and not connection.in_atomic_block:
            connection.health_check_enabled = True
            connection.close_if_unusable_or_obsolete()


# -- who opened a transaction

_OPENER = "_fusion_opener"


def _opener_of(connection: BaseDatabaseWrapper) -> tuple[str, str] | None:
    """Return the job that began the transaction of a connection, as its id and function; None if none did."""
    return connection.__dict__.get(_OPENER)


def _watch(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Make a connection record the job that begins a transaction."""
    known = connection.__dict__
    if _OPENER in known:
        return
    begin = connection.set_autocommit

    def set_autocommit(autocommit: bool, *args: Any, **kwargs: Any) -> None:
        job = None if autocommit else get_current_job()
        known[_OPENER] = None if job is None else (job.id, job.func_name)
        begin(autocommit, *args, **kwargs)

    known[_OPENER] = None
    known["set_autocommit"] = set_autocommit


connection_created.connect(_watch, dispatch_uid="fusion.contrib.django.connections")
