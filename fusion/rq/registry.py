"""RQ's registries: the jobs of one state of one queue. They are views: a job's state and its place change together, by the job's own methods."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

from redis import Redis

from fusion.exceptions import NoSuchJobError
from fusion.kernel.timeutil import now
from fusion.rq.connections import given
from fusion.rq.exceptions import InvalidJobOperation
from fusion.rq.hints import missing, refused
from fusion.rq.job import Job, parse_job_id
from fusion.rq.queue import Queue
from fusion.rq.rate_limit import RateLimitRegistry as RateLimitRegistry
from fusion.rq.utils import backend_class
from fusion.settings import get_settings
from fusion.store.access import inspector_of
from fusion.store.layout.codec import text
from fusion.store.layout.keys import Keys

#: Ids that are read in one call where a set holds the jobs of all queues.
_PAGE = 1000


class BaseRegistry:
    """The jobs of `status` of a queue. Without `name`, `connection` or `queue` it is that of the queue `default`.

    `cleanup` does nothing: workers do what is due. `add` can't be had. `remove` deletes the job; it can be restored for an hour.
    """

    #: The state, as Fusion names it.
    status = ""
    #: True if one set has the jobs of all queues.
    _shared = False
    job_class: type[Job] = Job

    def __init__(
        self,
        name: str = "default",
        connection: Redis | None = None,
        job_class: Any = None,
        queue: Queue | None = None,
        serializer: Any = None,
        death_penalty_class: Any = None,
    ) -> None:
        self.name = name if queue is None else queue.name
        self.connection = given(connection) if queue is None else queue.connection
        self.serializer = serializer if queue is None else queue.serializer
        self.job_class = backend_class(self, "job_class", override=job_class)

    @property
    def key(self) -> str:
        """The key of its set in Redis."""
        return Keys(get_settings().prefix).set_of(self.status, self.name)

    def __len__(self) -> int:
        return self.count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BaseRegistry) and (type(self), self.name) == (type(other), other.name)

    def __hash__(self) -> int:
        return hash((type(self), self.name))

    def __contains__(self, item: Job | str) -> bool:
        job_id = item if isinstance(item, str) else item.id
        status, origin = inspector_of(self.connection).fields(job_id, "status", "origin")
        return text(status) in self._states and text(origin) == self.name

    @property
    def _states(self) -> tuple[str, ...]:
        return (self.status,)

    @property
    def count(self) -> int:
        """The number of its jobs."""
        return self.get_job_count()

    def get_job_count(self, cleanup: bool = True) -> int:
        """Return the number of its jobs."""
        return len(self._ids())

    def get_job_ids(self, start: int = 0, end: int = -1, desc: bool = False, cleanup: bool = True) -> list[str]:
        """Return the ids from `start` to `end`, this one included; -1 is the last one."""
        ids = self._ids()
        if desc:
            ids.reverse()
        return ids[start : None if end == -1 else end + 1]

    def _ids(self) -> list[str]:
        if self._shared:
            return list(self._of_shared())
        return inspector_of(self.connection).members(self.status, self.name, 0, -1)

    def _of_shared(self) -> Iterator[str]:
        """Read the set of all queues, and leave the jobs of others out. It takes the longer the more jobs that set has."""
        inspector = inspector_of(self.connection)
        offset = 0
        while ids := inspector.members(self.status, self.name, offset, _PAGE):
            rows = inspector.table(ids, ["origin"])
            yield from (
                one
                for one, row in zip(ids, rows, strict=True)
                if not isinstance(row, Exception) and text(row["origin"]) == self.name
            )
            offset += len(ids)

    def get_queue(self) -> Queue:
        """Return its queue."""
        return Queue(self.name, self.connection, serializer=self.serializer)

    def get_expiration_time(self, job: Job) -> datetime:
        """Return when the job is forgotten."""
        found = self.job_class.fetch(job.id, self.connection)
        ended = found.ended_at or now()
        return ended + timedelta(seconds=max(0, found._seconds("result_ttl") or 0))

    def requeue(self, job_or_id: Job | str, at_front: bool = False) -> Job:
        """Requeue a job that is in it; return the job. InvalidJobOperation if it is not."""
        job = self.job_class.fetch(job_or_id, self.connection) if isinstance(job_or_id, str) else job_or_id
        if job not in self:
            raise InvalidJobOperation(f"job {job.id} is not in {type(self).__name__} of queue {self.name}")
        return job.requeue(at_front)

    def remove(self, job: Job | str, pipeline: Any = None, delete_job: bool = False) -> int:
        """Remove a job by deleting it; return how many were removed. With `delete_job` it can't be restored from the trash."""
        if pipeline is not None:
            raise refused("pipeline=", "leave it out")
        if job not in self:
            if delete_job and isinstance(job, str) and not self.job_class.exists(job, self.connection):
                raise NoSuchJobError(f"no job {job!r}")
            return 0
        found = job if isinstance(job, Job) else self.job_class(job, self.connection)
        super(Job, found).delete(purge=delete_job)
        return 1

    def add(self, *args: Any, **kwargs: Any) -> int:
        """Refuse: a job comes into a registry by its state."""
        raise refused(f"{type(self).__name__}.add()", "use the queue's and the job's own methods")

    def cleanup(self, timestamp: float | None = None, exception_handlers: Any = None) -> None:
        """Do nothing: workers do what is due."""

    @staticmethod
    def parse_job_id(entry: bytes | str) -> str:
        """Return the id of an entry."""
        return parse_job_id(text(entry))


class StartedJobRegistry(BaseRegistry):
    """The jobs that run."""

    status = "started"

    def get_job_and_execution_ids(
        self, start: int = 0, end: int = -1, desc: bool = False, cleanup: bool = True
    ) -> list[tuple[str, str]]:
        """Return pairs of a job's id and that of its run."""
        ids = self.get_job_ids(start, end, desc)
        rows = inspector_of(self.connection).table(ids, ["execution_id"]) if ids else []
        return [(one, text(row["execution_id"])) for one, row in zip(ids, rows, strict=True) if not isinstance(row, Exception)]

    def add(self, *args: Any, **kwargs: Any) -> int:
        """Refuse, as in RQ."""
        raise NotImplementedError

    def remove(self, job: Job | str, pipeline: Any = None, delete_job: bool = False) -> int:
        """Refuse, as in RQ."""
        raise NotImplementedError


class FinishedJobRegistry(BaseRegistry):
    """The jobs that finished."""

    status = "finished"


class FailedJobRegistry(BaseRegistry):
    """The jobs that failed, and as in RQ those that were stopped. Failed jobs of all queues are in one set, so this reads all of it."""

    status = "failed"
    _shared = True
    _states = ("failed", "stopped")

    def _ids(self) -> list[str]:
        return [*self._of_shared(), *inspector_of(self.connection).members("stopped", self.name, 0, -1)]

    def get_expiration_time(self, job: Job) -> datetime:
        """Return when the job is forgotten."""
        found = self.job_class.fetch(job.id, self.connection)
        ended = found.ended_at or now()
        return ended + timedelta(seconds=max(0, found._seconds("failure_ttl") or 0))


class DeferredJobRegistry(BaseRegistry):
    """The jobs that wait for others."""

    status = "deferred"


class ScheduledJobRegistry(BaseRegistry):
    """The jobs that wait for a time. Those of all queues are in one set, so this reads all of it."""

    status = "scheduled"
    _shared = True

    def schedule(self, job: Job, scheduled_datetime: datetime, pipeline: Any = None) -> int:
        """Have a job wait for this time: one that is not accepted yet, or another time for one that waits for a time. A naive time is one of
        this machine's zone. Returns 1 if the job was not scheduled before, else 0. InvalidJobOperation for a job that is in another state."""
        if pipeline is not None:
            raise refused("pipeline=", "leave it out")
        if job._is_draft:
            Queue(self.name, self.connection, serializer=self.serializer).schedule_job(job, scheduled_datetime)
            return 1
        job.reschedule(scheduled_datetime.astimezone(timezone.utc))
        return 0

    def get_scheduled_time(self, job_or_id: Job | str) -> datetime:
        """Return when a job is due. NoSuchJobError if it is not scheduled."""
        job_id = job_or_id if isinstance(job_or_id, str) else job_or_id.id
        due = inspector_of(self.connection).due_at(job_id)
        if due is None:
            raise NoSuchJobError(f"no scheduled job {job_id!r}")
        return due

    def get_expiration_time(self, job: Job) -> datetime:
        """Return when a job is due, in whole seconds as in RQ."""
        return self.get_scheduled_time(job).replace(microsecond=0)

    def get_jobs_to_schedule(self, timestamp: float | None = None, chunk_size: int = 1000) -> list[str]:
        """Return the ids of jobs that are due at that time."""
        upto = now().timestamp() if timestamp is None else timestamp
        found = ((one, self.get_scheduled_time(one)) for one in self._ids())
        return [one for one, due in found if due.timestamp() <= upto][:chunk_size]

    get_jobs_to_enqueue = get_jobs_to_schedule


class CanceledJobRegistry(BaseRegistry):
    """The jobs that were canceled."""

    status = "canceled"


def clean_registries(queue: Queue, exception_handlers: Any = None) -> None:
    """Do nothing: workers do what is due."""


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
