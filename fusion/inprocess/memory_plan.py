"""A plan in memory: for jobs that need not survive the process, and for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from fusion.inprocess.job import JobState, ReadyJob


@dataclass
class _Entry:
    job: ReadyJob
    state: JobState = JobState.PENDING
    result: Any = None
    error: str = ""


class MemoryPlan:
    """Jobs by id, in the order of addition. Safe to use from any thread. A completed job stays until `forget`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._entries: dict[Hashable, _Entry] = {}
        #: The Pending ones, so that a fetch need not go through all.
        self._pending: dict[Hashable, _Entry] = {}

    def add(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        job_id: Hashable = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Hashable:
        """Add a job that calls function(*args, **kwargs). Return its id: `job_id`, or the next number. ValueError if that id is taken."""
        with self._lock:
            job = ReadyJob(next(self._numbers) if job_id is None else job_id, name, partial(function, *args, **kwargs), timeout)
            if job.id in self._entries:
                raise ValueError(f"job id {job.id!r} is taken; use another one, or forget that job first")
            self._entries[job.id] = self._pending[job.id] = _Entry(job)
            return job.id

    def state(self, job_id: Hashable) -> JobState:
        """Return Pending, Active or Complete; a job that waits in a manager's queue is Pending. KeyError if there is no such job."""
        return self._entries[job_id].state

    def result(self, job_id: Hashable) -> Any:
        """Return the result of a completed job, else None. KeyError if there is no such job."""
        return self._entries[job_id].result

    def error(self, job_id: Hashable) -> str:
        """Return the traceback, or the reason, of the last failed run; empty if none failed. KeyError if there is no such job."""
        return self._entries[job_id].error

    def forget(self, job_id: Hashable) -> bool:
        """Remove a job. False if it is Active or does not exist."""
        with self._lock:
            entry = self._entries.get(job_id)
            if entry is None or entry.state is JobState.ACTIVE:
                return False
            del self._entries[job_id]
            self._pending.pop(job_id, None)
            return True

    # -- called by a manager

    def fetch_ready(self) -> list[ReadyJob]:
        """Return the Pending jobs."""
        with self._lock:
            return [entry.job for entry in self._pending.values()]

    def is_currently_running(self, job_id: Hashable) -> bool:
        """True if the job is Active."""
        entry = self._entries.get(job_id)
        return entry is not None and entry.state is JobState.ACTIVE

    def mark_running(self, job_id: Hashable) -> bool:
        """Make a Pending job Active. False if it is not Pending, or was forgotten."""
        with self._lock:
            entry = self._pending.pop(job_id, None)
            if entry is not None:
                entry.state = JobState.ACTIVE
            return entry is not None

    def mark_complete(self, job_id: Hashable, result: Any) -> None:
        """Make an Active job Complete."""
        with self._lock:
            entry = self._entries[job_id]
            entry.state, entry.result = JobState.COMPLETE, result

    def mark_pending(self, job_id: Hashable, error: str) -> None:
        """Make an Active job Pending, behind the others. A Complete job stays Complete."""
        with self._lock:
            entry = self._entries[job_id]
            entry.error = error
            if entry.state is not JobState.COMPLETE:
                entry.state = JobState.PENDING
                self._pending[job_id] = entry
