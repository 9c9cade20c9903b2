"""Registries: the jobs of one state, a page at a time. RQ's word and its methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime

from redis import Redis

from fusion.exceptions import NoSuchJobError
from fusion.job import Job
from fusion.store.access import inspector_of
from fusion.store.client.connections import get_current_connection


class JobRegistry(ABC):
    """The jobs of one state, of all queues. Every call is one round trip, or two if it fetches jobs. Its cost depends only on the size of the
    page."""

    def __init__(self, connection: Redis | None = None) -> None:
        self._connection = connection

    @property
    def connection(self) -> Redis:
        """The client that was given, else this process's own."""
        return self._connection if self._connection is not None else get_current_connection()

    def __len__(self) -> int:
        return self.count

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of jobs in it; O(1)."""

    @abstractmethod
    def get_job_ids(self, offset: int = 0, length: int = 100) -> list[str]:
        """Return a page of ids, in the order of the registry."""

    def get_jobs(self, offset: int = 0, length: int = 100) -> list[Job]:
        """Return a page of jobs, in the order of the registry. Jobs that are gone are left out."""
        return [job for job in Job.fetch_many(self.get_job_ids(offset, length), self.connection) if job is not None]


class ScheduledJobRegistry(JobRegistry):
    """The schedule, ordered by when jobs are due. There is one for all queues; RQ's, whose name this is, belongs to one queue.

    It is read-only: `Job.reschedule()` and `Job.cancel()` change it.
    """

    @property
    def count(self) -> int:
        """The number of scheduled jobs, of all queues; O(1)."""
        return inspector_of(self.connection).scheduled_count()

    def entries(self, offset: int = 0, length: int = 100) -> list[tuple[str, datetime]]:
        """Return a page of (id, when it is due), the soonest first."""
        return inspector_of(self.connection).scheduled(offset, length)

    def get_job_ids(self, offset: int = 0, length: int = 100) -> list[str]:
        """Return a page of ids, the soonest first."""
        return [job_id for job_id, _ in self.entries(offset, length)]

    def get_scheduled_time(self, job_or_id: Job | str) -> datetime:
        """Return when it is due. NoSuchJobError if it is not scheduled."""
        job_id = job_or_id.id if isinstance(job_or_id, Job) else job_or_id
        due = inspector_of(self.connection).due_at(job_id)
        if due is None:
            raise NoSuchJobError(f"no scheduled job {job_id!r}: it waits for no time, or there is no such job")
        return due
