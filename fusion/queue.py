"""Producers' side: a named queue of jobs in three priorities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from redis import Redis

from fusion import defaults
from fusion.job import Job
from fusion.options import EnqueueOptions, JobData, build, new_nonce, sealed, split_options
from fusion.settings import get_settings
from fusion.store.access import broker_of, inspector_of
from fusion.store.connections import get_current_connection
from fusion.store.keys import check_queue_name


class PriorityQueue:
    """A queue. Higher priority runs first; inside one priority, jobs run in the order in which they were enqueued.

    Making one costs nothing and talks to nobody. Every `enqueue` is one round trip; when it has returned, the job is Redis's. It raises,
    with nothing written: ValueError for a bad option, SerializationError for an argument that is no JSON, PayloadTooLarge, DuplicateJob.
    """

    PRIORITY_HIGH = 2
    PRIORITY_MODERATE = 1
    PRIORITY_LOW = 0

    def __init__(
        self, name: str = defaults.QUEUE, connection: Redis | None = None, *, default_timeout: float | str | None = None
    ) -> None:
        self.name = check_queue_name(name)
        self._connection = connection
        self._default_timeout = default_timeout

    @property
    def connection(self) -> Redis:
        return self._connection if self._connection is not None else get_current_connection()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PriorityQueue) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __len__(self) -> int:
        return self.count

    # -- enqueueing

    def enqueue(self, f: str | Callable[..., Any], /, *args: Any, **kwargs: Any) -> Job:
        """Accept a call of `f`, a function or its dotted path.

        Keywords that `EnqueueOptions` names are options (priority, job_timeout, result_ttl, ttl, job_id, retry, log_tag ...), all others
        are the task's. `args=` and `kwargs=` give the task's arguments apart, as in RQ.
        """
        options, rest = split_options(kwargs)
        if "args" in rest or "kwargs" in rest:
            if args:
                raise ValueError("give the task's arguments either directly or by args= and kwargs=, not both")
            args, rest = tuple(rest.pop("args", None) or ()), {**(rest.pop("kwargs", None) or {}), **rest}
        return self._accept([self._build(f, args, rest, options)])[0]

    def enqueue_at(self, when: datetime, f: str | Callable[..., Any], /, *args: Any, **kwargs: Any) -> Job:
        """`enqueue` for a time: an aware datetime. It waits in the schedule, which is one for all queues, until it is due by the server's
        clock; one that is due already is queued at once. Its `ttl` begins when it is due.

        TypeError for what is no datetime; ValueError for a naive one and for one over 1e9 s (31 years) ahead.
        """
        return self.enqueue(f, *args, **_timed("enqueue_at", when, kwargs))

    def enqueue_in(self, delta: timedelta | float | str, f: str | Callable[..., Any], /, *args: Any, **kwargs: Any) -> Job:
        """`enqueue_at` so much later than now by the server's clock: a timedelta, seconds, or a text like "5m". ValueError for anything
        else, and for a negative one."""
        return self.enqueue(f, *args, **_timed("enqueue_in", delta, kwargs))

    def enqueue_call(
        self,
        func: str | Callable[..., Any],
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout: float | str | None = None,
        **options: Any,
    ) -> Job:
        """`enqueue` with the task's arguments apart from the options, so that no name can be mistaken."""
        known = EnqueueOptions(job_timeout=options.pop("job_timeout", timeout), **options)
        return self._accept([self._build(func, tuple(args or ()), kwargs or {}, known)])[0]

    @staticmethod
    def prepare_data(
        func: str | Callable[..., Any],
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout: float | str | None = None,
        **options: Any,
    ) -> JobData:
        """A job for `enqueue_many`, checked and encoded. `enqueue_in` counts from the moment at which that sends it."""
        known = EnqueueOptions(job_timeout=options.pop("job_timeout", timeout), **options)
        return build(func, tuple(args or ()), kwargs or {}, known, get_settings())

    def enqueue_many(self, job_datas: Iterable[JobData]) -> list[Job]:
        """Accept many jobs, one round trip per 500.

        DuplicateJob if an id is taken or comes twice: then nothing of its 500 was written, and the 500s before it were.
        """
        jobs: list[Job] = []
        batch: list[JobData] = []
        for data in job_datas:
            batch.append(data)
            if len(batch) == defaults.ENQUEUE_CHUNK:
                jobs += self._accept(batch)
                batch = []
        return jobs + self._accept(batch) if batch else jobs

    def _build(
        self, func: str | Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], options: EnqueueOptions
    ) -> JobData:
        if options.job_timeout is None and self._default_timeout is not None:
            options = options.over(EnqueueOptions(job_timeout=self._default_timeout))
        return build(func, args, kwargs, options, get_settings())

    def _accept(self, batch: list[JobData]) -> list[Job]:
        new = sealed(self.name, [data.new for data in batch], get_settings())
        if len({job.id for job in new}) < len(new):
            raise ValueError("the same job_id twice in one enqueue_many; ids are unique")
        connection = self.connection
        broker = broker_of(connection)
        accepted = broker.enqueue(self.name, new, new_nonce())
        common = {"origin": self.name, "original_queue": self.name, "created_at": accepted, "enqueued_at": accepted}
        jobs = []
        for job in new:
            status = "scheduled" if broker.waits(job, accepted) else "queued"
            jobs.append(Job(job.id, {**job.fields, **common, "status": status, "priority": job.priority}, connection))
        return jobs

    # -- looking

    @property
    def count(self) -> int:
        """Waiting jobs; O(1)."""
        return inspector_of(self.connection).count(self.name)

    def is_empty(self) -> bool:
        return self.count == 0

    def get_job_ids(self, offset: int = 0, length: int = 100) -> list[str]:
        """A page of waiting ids, the next to run first."""
        return inspector_of(self.connection).waiting(self.name, offset, length)

    def get_jobs(self, offset: int = 0, length: int = 100) -> list[Job]:
        return [job for job in Job.fetch_many(self.get_job_ids(offset, length), self.connection) if job is not None]

    def fetch_job(self, job_id: str) -> Job | None:
        """The job with this id if it is of this queue."""
        (job,) = Job.fetch_many([job_id], self.connection)
        return job if job is not None and job.origin == self.name else None

    @classmethod
    def all(cls, connection: Redis | None = None) -> list[PriorityQueue]:
        """Every queue that jobs were ever enqueued to."""
        connection = connection if connection is not None else get_current_connection()
        return [cls(name, connection) for name in inspector_of(connection).queue_names()]

    # -- changing

    def pause(self, seconds: int | None = None) -> None:
        """From the moment this returns no job of the queue is started, for `seconds` or until `resume`. Those that run go on; jobs can
        still be enqueued. Survives restarts of workers and, with its data, of Redis."""
        broker_of(self.connection).pause(self.name, seconds)

    def resume(self) -> bool:
        """Start its jobs again; False if it was not paused."""
        return broker_of(self.connection).unpause(self.name)

    def empty(self) -> int:
        """Forget all waiting jobs; returns how many. Those that are running are not touched."""
        return sum(self._emptying())

    def _emptying(self) -> Iterator[int]:
        again = True
        while again:
            deleted, again = broker_of(self.connection).empty(self.name)
            yield deleted


def _timed(name: str, time: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    if time is None:
        raise TypeError(f"{name}(): None is no time; to run it at once use enqueue()")
    if "enqueue_at" in kwargs or "enqueue_in" in kwargs:
        raise ValueError(f"{name}() has its time already, as its first argument; remove enqueue_at= and enqueue_in=")
    return {**kwargs, name: time}


Queue = PriorityQueue
