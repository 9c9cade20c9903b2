"""Sessions and engines of jobs: no connection is shared over a fork, and no session outlives its job."""

from __future__ import annotations

import os
from _thread import get_ident
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from sqlalchemy.engine import Engine

from fusion.context import get_current_job
from fusion.middleware import WorkerMiddleware, register

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine
    from sqlalchemy.orm import scoped_session

    from fusion.context import CurrentJob

_apart: WeakSet[Engine] = WeakSet()


def keep_apart(engine: Engine | AsyncEngine) -> None:
    """Give each process that is forked from this one a pool of its own: of Fusion's workers, of gunicorn, of `multiprocessing`. The connections of
    this process stay open and its own. To be called once, where the engine is made; again is harmless."""
    _apart.add(engine if isinstance(engine, Engine) else engine.sync_engine)


def _forget() -> None:
    for engine in list(_apart):
        engine.dispose(close=False)  # the parent uses them: a goodbye of ours would end its sessions


os.register_at_fork(after_in_child=_forget)


def scope_of_job() -> Any:
    """Return whose session this is, for `scoped_session(..., scopefunc=scope_of_job)`: of the job that runs here, else of the thread. By thread
    alone, jobs on one event loop would share a session."""
    job = get_current_job()
    return get_ident() if job is None else job.execution_id


class JobSessions(WorkerMiddleware):
    """`register(JobSessions(Session))`: when a job has ended, its session of this `scoped_session` is closed. What it has not committed is rolled
    back, and its connection returns to the pool."""

    def __init__(self, sessions: scoped_session[Any]) -> None:
        self._sessions = sessions

    def around_job(self, job: CurrentJob) -> Iterator[None]:
        """Close what the job has opened."""
        try:
            yield
        finally:
            self._sessions.remove()


def per_job(sessions: scoped_session[Any], *engines: Engine | AsyncEngine) -> None:
    """Close the sessions of jobs when these end, and keep the engines' connections apart in forks."""
    for engine in engines:
        keep_apart(engine)
    register(JobSessions(sessions))
