"""RQ's `Execution`: the run of a job that is under way. A job has one at a time."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from redis import Redis

from fusion.kernel.timeutil import from_iso, now
from fusion.rq.connections import given
from fusion.rq.hints import missing
from fusion.rq.job import Job
from fusion.store.access import inspector_of
from fusion.store.layout.codec import text


class Execution:
    """A run that is under way. Its worker's heartbeat is its own."""

    def __init__(self, id: str, job_id: str, connection: Redis, worker_name: str = "") -> None:
        self.id, self.job_id, self.connection, self.worker_name = id, job_id, given(connection), worker_name
        self.created_at: datetime = now()
        self.last_heartbeat: datetime = self.created_at
        self._job: Job | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Execution) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def job(self) -> Job:
        """Its job. NoSuchJobError."""
        if self._job is None:
            self._job = Job.fetch(self.job_id, self.connection)
        return self._job

    @property
    def composite_key(self) -> str:
        """The ids of its job and its own, with a colon between."""
        return f"{self.job_id}:{self.id}"

    @classmethod
    def fetch(cls, id: str, job_id: str, connection: Redis) -> Execution:
        """Return the run of this id. ValueError if it is not under way."""
        execution = cls(id, job_id, connection)
        execution.refresh()
        return execution

    @classmethod
    def from_composite_key(cls, composite_key: str, connection: Redis) -> Execution:
        """Return the run of this `composite_key`, without reading it."""
        job_id, _, id = composite_key.partition(":")
        return cls(id, job_id, connection)

    def refresh(self) -> None:
        """Read it again. ValueError if it is not under way."""
        inspector = inspector_of(self.connection)
        names = ("status", "execution_id", "started_at", "worker_name")
        status, id, began, worker = map(text, inspector.fields(self.job_id, *names))
        if status != "started" or id != self.id:
            raise ValueError(f"Execution {self.id} of job {self.job_id} is not under way")
        self.worker_name, self.created_at = worker, from_iso(began) or self.created_at
        found = inspector.workers([worker])
        self.last_heartbeat = (found[0].last_heartbeat if found else None) or self.created_at


class ExecutionRegistry:
    """The runs of one job that are under way: one or none."""

    def __init__(self, job_id: str, connection: Redis) -> None:
        self.job_id, self.connection = job_id, given(connection)

    def get_execution_ids(self, start: int = 0, end: int = -1) -> list[str]:
        """Return the ids from `start` to `end`, this one included; -1 is the last one."""
        status, id = map(text, inspector_of(self.connection).fields(self.job_id, "status", "execution_id"))
        return [id][start : None if end == -1 else end + 1] if status == "started" and id else []

    def get_executions(self, start: int = 0, end: int = -1) -> list[Execution]:
        """Return the runs from `start` to `end`. One that ends meanwhile is left out."""
        found = []
        for id in self.get_execution_ids(start, end):
            try:
                found.append(Execution.fetch(id, self.job_id, self.connection))
            except ValueError:
                pass
        return found

    def cleanup(self, timestamp: float | None = None, exception_handlers: Any = None) -> None:
        """Do nothing: a run that has ended is none of them."""


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
