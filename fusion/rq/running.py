"""The run of a job of RQ's, inside its process: what its task sees as the current job, and how its callbacks are called.

Lean, as all code of a job's process: redis is imported, and a connection opened, on first use.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

import fusion.context
from fusion.context import CurrentJob
from fusion.exceptions import SerializationError
from fusion.execution import outcome, perform
from fusion.kernel import timeouts
from fusion.rq.exception_handlers import VARIABLE

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing costs every job's process 0.6 MB
    from typing import Any

    from fusion.execution.guards import Guard

#: What RQ stores for a result that can't be stored.
_UNSERIALIZABLE = "Unserializable return value"
#: Seconds that all exception handlers of a worker may take together.
_HANDLERS_TIMEOUT = 60.0


def get_current_job(connection: Any = None, job_class: Any = None) -> Any:
    """Return the job that this code runs for, as RQ's Job; None outside a job. The arguments are RQ's old ones, and change nothing."""
    return fusion.context.get_current_job()


class RunningJob(CurrentJob):
    """The current job of a task of RQ's. What needs Redis is done by a Job, which is made on first use.

    `meta` and `save_meta` go by the worker, as for all jobs of Fusion. `save` stores `meta` alone: all else is the worker's.
    """

    #: What the job will be, once the task is over.
    _final = ""
    _full: Any = None

    @property
    def job(self) -> Any:
        """The Job of this run."""
        if self._full is None:
            self._full = import_module("fusion.rq.job").Job.fetch(self.id)
        return self._full

    @property
    def connection(self) -> Any:
        """A client of the worker's Redis."""
        return import_module("fusion.rq.connections").given(None)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Say that this is a Job, to a program that has imported it."""
        module = sys.modules.get("fusion.rq.job")
        return RunningJob if module is None else module.Job

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.job, name)

    def get_status(self, refresh: bool = True) -> Any:
        """Return the state of the job; in a callback the one that it will have."""
        statuses = import_module("fusion.rq.status").JobStatus
        return statuses(self._final) if self._final else self.job.get_status(refresh=refresh)

    @property
    def is_finished(self) -> bool:
        """True in `on_success`."""
        return bool(self.get_status() == "finished")

    @property
    def is_failed(self) -> bool:
        """True in `on_failure`."""
        return bool(self.get_status() == "failed")

    @property
    def is_stopped(self) -> bool:
        """True in `on_stopped`."""
        return bool(self.get_status() == "stopped")

    @property
    def is_started(self) -> bool:
        """True while the task runs."""
        return bool(self.get_status() == "started")

    def get_meta(self, refresh: bool = True) -> dict[str, Any]:
        """Return `meta`; with `refresh` as Redis has it, unless this run has used it: what it saved may be on its way."""
        if refresh and self.touched_meta is None:
            self.meta = self.job.get_meta()
        return self.meta

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Store `meta`."""
        self.save_meta()

    def refresh(self) -> None:
        """Read the job again, but for a `meta` that this run has used: what it saved may be on its way."""
        self.job.refresh()
        if self.touched_meta is None:
            self.meta = self.job.meta

    def __eq__(self, other: object) -> bool:
        return getattr(other, "id", None) == self.id

    def __hash__(self) -> int:
        return hash(self.id)


class LazyConnection:
    """A callback's connection, opened on first use."""

    def __init__(self, job: RunningJob) -> None:
        self._job = job

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Say that this is a client of redis-py."""
        return import_module("redis").Redis

    def __getattr__(self, name: str) -> Any:
        return getattr(self._job.connection, name)


class Execution(perform.Execution):
    """The run of one job of RQ's."""

    job_class: type[CurrentJob] = RunningJob

    def run(self, guard: Guard) -> perform.Fields:
        """Run the job; its timeout is an Exception, raised once."""
        if guard.among_others:
            return super().run(guard)
        timeouts.raised.kind, timeouts.raised.repeat = import_module("fusion.rq.timeouts").JobTimeoutException, 0.0
        try:
            return super().run(guard)
        finally:
            timeouts.raised.reset()

    def _run_hooks(self, guard: Guard) -> None:
        super()._run_hooks(guard)
        error = self._end[0]
        if error is not None and self._answer.get(b"kind") == b"failed" and os.environ.get(VARIABLE):
            self._announce({b"kind": b"callback", b"seconds": b"%.3f" % _HANDLERS_TIMEOUT})
            kind = type(error)
            run = import_module("fusion.rq.exception_handlers").handle
            try:
                guard.run_with_timeout(_HANDLERS_TIMEOUT, "Handlers", lambda: run(self.job, kind, error, error.__traceback__))
            except BaseException as raised:
                self._note(f"exception handlers: {outcome.exc_line(raised).decode()}")

    def _encoded(self, value: Any) -> bytes:
        try:
            return super()._encoded(value)
        except SerializationError:
            return super()._encoded(_UNSERIALIZABLE)

    def _plan_callback(self, key: bytes, *args: Any) -> None:
        self.job._final = {b"on_success": "finished", b"on_failure": "failed"}.get(key, "stopped")  # type: ignore[attr-defined]
        super()._plan_callback(key, *args)

    def _callback_connection(self) -> Any:
        return LazyConnection(self.job)  # type: ignore[arg-type]
