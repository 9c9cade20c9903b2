"""RQ's Queue over Fusion's: RQ's own keywords are options, all others go to the task."""

# mypy: disable-error-code="override"
# (RQ's signatures differ from those of the core.)

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import total_ordering
from importlib import import_module
from typing import Any, NamedTuple

from redis import Redis

import fusion.queue
from fusion.enqueue.build import JobData
from fusion.enqueue.call import terms_of
from fusion.enqueue.options import NONE
from fusion.exceptions import UnknownDependency
from fusion.kernel.nonces import new_nonce
from fusion.kernel.timeutil import now
from fusion.rq import defaults
from fusion.rq.at_once import run_at_once
from fusion.rq.connections import given
from fusion.rq.exceptions import InvalidJobDependency
from fusion.rq.hints import missing, refused
from fusion.rq.job import Job
from fusion.rq.repeat import Repeat
from fusion.rq.serializers import resolve_serializer
from fusion.rq.status import JobStatus
from fusion.rq.utils import backend_class, parse_timeout
from fusion.settings import get_settings
from fusion.store.access import inspector_of
from fusion.store.layout.keys import Keys
from fusion.store.layout.records import NewJob
from fusion.trash import Trash

Func = str | Callable[..., Any]


class EnqueueData(NamedTuple):
    """A job as `Queue.prepare_data` returns it for `enqueue_many`."""

    func: Any
    args: Any = None
    kwargs: Any = None
    timeout: Any = None
    result_ttl: Any = None
    ttl: Any = None
    failure_ttl: Any = None
    description: Any = None
    depends_on: Any = None
    job_id: Any = None
    at_front: bool = False
    meta: Any = None
    retry: Any = None
    on_success: Any = None
    on_failure: Any = None
    on_stopped: Any = None
    repeat: Repeat | None = None
    webhooks: Any = None


class EnqueueArgs(NamedTuple):
    """The parts that `Queue.parse_args` finds in the arguments of an `enqueue`."""

    func: Any
    timeout: Any
    description: Any
    result_ttl: Any
    ttl: Any
    failure_ttl: Any
    depends_on: Any
    job_id: Any
    at_front: bool
    meta: Any
    retry: Any
    repeat: Repeat | None
    on_success: Any
    on_failure: Any
    on_stopped: Any
    rate_limit: Any
    pipeline: Any
    unique: bool
    args: Any
    kwargs: Any
    webhooks: Any

    def for_call(self) -> dict[str, Any]:
        """Return these as arguments of `enqueue_call`."""
        return self._asdict()


#: Keywords of `enqueue` that are options; all others are the task's. `job_timeout` is `timeout` in `enqueue_call`.
RESERVED = (
    *(
        "job_timeout",
        "description",
        "result_ttl",
        "ttl",
        "failure_ttl",
        "depends_on",
        "job_id",
        "at_front",
        "meta",
        "retry",
        "repeat",
    ),
    *("on_success", "on_failure", "on_stopped", "rate_limit", "pipeline", "unique"),
)
#: Of those what is not None if it is absent.
_SWITCHES = ("at_front", "unique")


@total_ordering
class Queue(fusion.queue.PriorityQueue):
    """A queue. Creating one sends nothing to Redis. Its jobs run in the order in which they come."""

    job_class: type[Job] = Job
    DEFAULT_TIMEOUT = defaults.DEFAULT_TIMEOUT

    def __init__(
        self,
        name: str = "default",
        connection: Redis | None = None,
        default_timeout: Any = None,
        is_async: bool = True,
        job_class: Any = None,
        serializer: Any = None,
        death_penalty_class: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name, connection)
        self._default_timeout = parse_timeout(default_timeout) or self.DEFAULT_TIMEOUT
        if "async" in kwargs:
            warnings.warn("The `async` keyword is deprecated. Use `is_async` instead", DeprecationWarning, stacklevel=2)
            is_async = kwargs["async"]
        self._is_async, self.serializer = is_async, resolve_serializer(serializer)
        self.job_class = backend_class(self, "job_class", override=job_class)

    @property
    def connection(self) -> Redis:
        """The client that was given, else this process's own."""
        return given(self._connection)

    @property
    def is_async(self) -> bool:
        """False if jobs run at once, here."""
        return self._is_async

    # -- enqueueing

    @classmethod
    def parse_args(cls, f: Func, *args: Any, **kwargs: Any) -> EnqueueArgs:
        """Separate the options of an `enqueue` from the arguments of its task."""
        if not isinstance(f, str) and f.__module__ == "__main__":
            raise ValueError("Functions from the __main__ module cannot be processed by workers")
        options = {name: kwargs.pop(name, False if name in _SWITCHES else None) for name in RESERVED}
        options["timeout"], options["webhooks"] = options.pop("job_timeout"), kwargs.pop("webhooks", None)
        if "args" in kwargs or "kwargs" in kwargs:
            if args:
                raise AssertionError("Extra positional arguments cannot be used when using explicit args and kwargs")
            args, kwargs = kwargs.pop("args", None), kwargs.pop("kwargs", None)
        return EnqueueArgs(func=f, args=args, kwargs=kwargs, **options)

    def enqueue(self, f: Func, *args: Any, **kwargs: Any) -> Job:
        """Enqueue a call of `f`, a function or its dotted path. RQ's options are options; all other keywords are the task's."""
        return self.enqueue_call(**self.parse_args(f, *args, **kwargs).for_call())

    def enqueue_call(
        self,
        func: Func,
        args: Any = None,
        kwargs: Any = None,
        timeout: Any = None,
        result_ttl: Any = None,
        ttl: Any = None,
        failure_ttl: Any = None,
        description: str | None = None,
        depends_on: Any = None,
        job_id: str | None = None,
        at_front: bool = False,
        meta: Any = None,
        retry: Any = None,
        repeat: Repeat | None = None,
        on_success: Any = None,
        on_failure: Any = None,
        on_stopped: Any = None,
        rate_limit: Any = None,
        pipeline: Any = None,
        unique: bool = False,
        webhooks: Any = None,
    ) -> Job:
        """Enqueue with the task's arguments apart. DuplicateJobError if a living job has this `job_id`, with `unique=` and without."""
        if rate_limit is not None and pipeline is not None:
            raise ValueError("a job with a rate limit takes no pipeline")
        job = self.create_job(
            *(func, args, kwargs, timeout, result_ttl, ttl, failure_ttl, description, depends_on, job_id, meta),
            retry=retry, repeat=repeat, on_success=on_success, on_failure=on_failure, on_stopped=on_stopped,
            rate_limit=rate_limit, webhooks=webhooks,
        )  # fmt: skip
        return self.enqueue_job(job, pipeline=pipeline, at_front=at_front, unique=unique)

    def create_job(
        self,
        func: Func,
        args: Any = None,
        kwargs: Any = None,
        timeout: Any = None,
        result_ttl: Any = None,
        ttl: Any = None,
        failure_ttl: Any = None,
        description: str | None = None,
        depends_on: Any = None,
        job_id: str | None = None,
        meta: Any = None,
        status: JobStatus = JobStatus.QUEUED,
        retry: Any = None,
        repeat: Repeat | None = None,
        *,
        on_success: Any = None,
        on_failure: Any = None,
        on_stopped: Any = None,
        webhooks: Any = None,
        group_id: str | None = None,
        rate_limit: Any = None,
    ) -> Job:
        """Return a job of this queue which is not accepted yet."""
        timeout = parse_timeout(timeout)
        if timeout == 0:
            raise ValueError("0 timeout is not allowed. Use -1 for infinite timeout")
        if rate_limit is not None and not self._is_async:
            raise ValueError("rate_limit is not supported by a queue that runs its jobs at once")
        job = self.job_class.create(
            func, args, kwargs, self.connection, result_ttl, ttl, status, description, depends_on,
            self._default_timeout if timeout is None else timeout, retry, job_id, self.name, meta, failure_ttl, self.serializer, group_id,
            on_success=on_success, on_failure=on_failure, on_stopped=on_stopped, webhooks=webhooks, rate_limit=rate_limit,
        )  # fmt: skip
        if repeat is not None:
            job.repeats_left, job.repeat_intervals = repeat.times, list(repeat.intervals)
        return job

    def enqueue_job(self, job: Job, pipeline: Any = None, at_front: bool = False, unique: bool = False) -> Job:
        """Enqueue a Job object, a new one or one that has ended. It waits for its parents first."""
        _not_yet(pipeline=pipeline)
        if unique:
            _check_unique(job)
        return self._send(job, at_front=at_front)

    def schedule_job(self, job: Job, datetime: datetime, pipeline: Any = None, unique: bool = False) -> Job:
        """Enqueue a Job object for a time. A naive time is one of this machine's zone."""
        _not_yet(pipeline=pipeline)
        if unique and not job._has_own_id:
            raise ValueError(_NEEDS_ID)
        return self._send(job, due=max(0.0, datetime.timestamp()))

    def enqueue_at(self, datetime: datetime, f: Func, *args: Any, **kwargs: Any) -> Job:
        """Enqueue for a time. A naive time is one of this machine's zone."""
        call = self.parse_args(f, *args, **kwargs)
        return self.schedule_job(self._created(call), datetime, pipeline=call.pipeline, unique=call.unique)

    def enqueue_in(self, time_delta: timedelta, func: Func, *args: Any, **kwargs: Any) -> Job:
        """Enqueue for a time that is this far from now."""
        return self.enqueue_at(now() + time_delta, func, *args, **kwargs)

    def _created(self, call: EnqueueArgs) -> Job:
        options = call.for_call()
        at_front = options.pop("at_front")
        for name in ("pipeline", "unique"):
            del options[name]
        job = self.create_job(**options)
        job.enqueue_at_front = at_front or job.enqueue_at_front
        return job

    @staticmethod
    def prepare_data(func: Func, args: Any = None, kwargs: Any = None, *more: Any, **options: Any) -> EnqueueData:
        """Return a job for `enqueue_many`."""
        return EnqueueData(func, args, kwargs, *more, **options)

    def enqueue_many(self, job_datas: Iterable[EnqueueData], pipeline: Any = None, group_id: str | None = None) -> list[Job]:
        """Enqueue many jobs. Independent ones come first in the answer, as in RQ."""
        _not_yet(pipeline=pipeline)
        return self._send_many(*self._made(job_datas, group_id))

    def _made(self, job_datas: Iterable[EnqueueData], group_id: str | None) -> tuple[list[Job], list[Job]]:
        """Return the jobs that wait for no others, and those that do; none is accepted yet."""
        independent, others = list[Job](), list[Job]()
        for data in job_datas:
            options = data._asdict()
            at_front = options.pop("at_front")
            job = self.create_job(**options, group_id=group_id)
            job.enqueue_at_front = at_front or job.enqueue_at_front
            (others if "parents" in job._fields else independent).append(job)
        return independent, others

    def _send_many(self, independent: list[Job], others: list[Job]) -> list[Job]:
        for job in others:
            self._send(job)
        if independent and not self._is_async:
            return [self._send(job) for job in independent] + others
        datas = [_as_data(job, self._new_of(job)) for job in independent]
        if datas:
            for job, accepted in zip(independent, self._run(self._many(datas, None, NONE)), strict=True):
                _accepted(job, accepted)
        return independent + others

    def _new_of(self, job: Job, at_front: bool = False, due: float | None = None) -> NewJob:
        """Return the job as it is sent: what its fields say by now."""
        job._settle()
        fields = {name: value for name, value in job._fields.items() if name not in _OF_ACCEPTED}
        new = job._new.new if job._new is not None else None
        ttl = job.ttl
        front = at_front or job.enqueue_at_front
        nonce = new.nonce if new is not None else ""
        past = due is not None and due <= time.time()  # as in RQ such a job is scheduled, and enqueued at the next look
        return NewJob(job.id, 1, fields, front, ttl, None if past else due, 0.001 if past else None, nonce or new_nonce())

    def _send(self, job: Job, at_front: bool = False, due: float | None = None) -> Job:
        job.origin = self.name
        if job.timeout is None:
            job.timeout = self._default_timeout
        if not self._is_async and due is None:
            if parents := [one for one in job.fetch_dependencies() if not one.is_finished]:
                raise refused(
                    f"a job that waits for {parents[0].id} in a queue that runs its jobs at once",
                    "enqueue its parents to this queue",
                )
            return run_at_once(job, self.name)
        while True:
            data = _as_data(job, self._new_of(job, at_front, due))
            try:
                accepted = self._run(self._one(data, terms_of(NONE, get_settings())))
            except UnknownDependency as error:
                if Job.exists(error.parent_id, self.connection):
                    raise InvalidJobDependency(
                        "depends_on", f"job {error.parent_id!r} is not enqueued yet, or is another program's: enqueue it first"
                    ) from None
                warnings.warn(
                    f"job {job.id}: its parent {error.parent_id} is gone, and counts as finished, as in RQ",
                    RuntimeWarning,
                    stacklevel=4,
                )
                job._drop_parent(error.parent_id)
            else:
                _accepted(job, accepted)
                if job.has_rate_limit:
                    job.get_status()  # whether it got a slot
                return job

    # -- looking

    def get_job_ids(self, offset: int = 0, length: int = -1) -> list[str]:
        """Return the waiting ids, the next to run first: all of them, or `length` from `offset`."""
        return inspector_of(self.connection).waiting(self.name, offset, length)

    def get_jobs(self, offset: int = 0, length: int = -1) -> list[Job]:
        """Return the waiting jobs, the next to run first."""
        found = self.job_class.fetch_many(self.get_job_ids(offset, length), self.connection)
        return [job for job in found if job is not None]

    @property
    def job_ids(self) -> list[str]:
        """All waiting ids, the next to run first."""
        return self.get_job_ids()

    @property
    def jobs(self) -> list[Job]:
        """All waiting jobs, the next to run first."""
        return self.get_jobs()

    def fetch_job(self, job_id: str) -> Job | None:
        """Return the job with this id if it is of this queue, else None."""
        (job,) = self.job_class.fetch_many([job_id], self.connection)
        return job if job is not None and job.origin == self.name else None

    def get_job_position(self, job_or_id: Job | str) -> int | None:
        """Return how many jobs come before it; None if it does not wait here."""
        job_id = job_or_id if isinstance(job_or_id, str) else job_or_id.id
        return inspector_of(self.connection).position(self.name, job_id)

    @property
    def key(self) -> str:
        """Its key in Redis."""
        return Keys(get_settings().prefix).queue(self.name)

    def _registry(self, name: str) -> Any:
        return getattr(import_module("fusion.rq.registry"), name)(queue=self, job_class=self.job_class)

    failed_job_registry = property(lambda self: self._registry("FailedJobRegistry"), doc="Its failed jobs.")
    started_job_registry = property(lambda self: self._registry("StartedJobRegistry"), doc="Its running jobs.")
    finished_job_registry = property(lambda self: self._registry("FinishedJobRegistry"), doc="Its finished jobs.")
    deferred_job_registry = property(lambda self: self._registry("DeferredJobRegistry"), doc="Its jobs that wait for others.")
    scheduled_job_registry = property(lambda self: self._registry("ScheduledJobRegistry"), doc="Its jobs that wait for a time.")
    canceled_job_registry = property(lambda self: self._registry("CanceledJobRegistry"), doc="Its canceled jobs.")

    @classmethod
    def from_queue_key(
        cls, queue_key: str, connection: Redis | None = None, job_class: Any = None, serializer: Any = None,
        death_penalty_class: Any = None,
    ) -> Queue:  # fmt: skip
        """Return the queue of this key. ValueError for what is no queue's key."""
        prefix = Keys(get_settings().prefix).queue("")
        if not queue_key.startswith(prefix):
            raise ValueError(f"Not a valid RQ queue key: {queue_key}")
        return cls(queue_key.removeprefix(prefix), connection, job_class=job_class, serializer=serializer)

    @classmethod
    def all(
        cls, connection: Redis | None = None, job_class: Any = None, serializer: Any = None, death_penalty_class: Any = None
    ) -> list[Queue]:
        """Return every queue that jobs were ever enqueued to."""
        client = given(connection)
        return [cls(name, client, job_class=job_class, serializer=serializer) for name in inspector_of(client).queue_names()]

    # -- changing

    def empty(self) -> int:
        """Delete the jobs that wait for their turn, for good; return their number. Those that wait for others or for a time stay, as in RQ."""
        return list(Trash(self.connection).delete(self.get_job_ids(), purge=True).values()).count("deleted")

    def delete(self, delete_jobs: bool = True) -> None:
        """Delete its waiting jobs, for good. The queue itself is forgotten when it has been unused for a day."""
        if not delete_jobs:
            raise refused("delete(delete_jobs=False)", "leave it out: a job that waits in no queue would be lost")
        self.empty()

    def remove(self, job_or_id: Job | str, pipeline: Any = None) -> None:
        """Take a waiting job out: it ends as canceled. RQ leaves its record as it is."""
        _not_yet(pipeline=pipeline)
        job = self.fetch_job(job_or_id if isinstance(job_or_id, str) else job_or_id.id)
        if job is not None and job.get_status(refresh=False) is JobStatus.QUEUED:
            job.cancel()

    # -- comparing

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, fusion.queue.PriorityQueue):
            raise TypeError("Cannot compare queues to other objects")
        return self.name == other.name

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, fusion.queue.PriorityQueue):
            raise TypeError("Cannot compare queues to other objects")
        return self.name < other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __str__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


#: Fields of a record that come with its acceptance or its runs.
_OF_ACCEPTED = frozenset((
    *("created_at", "enqueued_at", "status", "origin", "original_queue", "priority", "seq", "nonce", "started_at", "ended_at", "worker_name"),
    *("execution_id", "result", "exc_info", "reason", "history", "attempts", "deliveries", "lost", "expires_at", "error_class", "error_frame"),
    *("draft", "error_bases", "callback_error", "progress", "cursor", "last_heartbeat", "signature", "waits_in", "result_error", "arrival"),
))  # fmt: skip


def _as_data(job: Job, new: NewJob) -> JobData:
    return JobData(job.func_name, new, len(new.fields.get("data", b"")) + 300, (job.args, job.kwargs))


def _accepted(job: Job, accepted: Any) -> Job:
    meta = job._meta
    job._fields, job._new = dict(accepted._fields), None
    job._meta = meta
    return job


_NEEDS_ID = "unique=True requires an explicit job_id"


def _check_unique(job: Job) -> None:
    """ValueError for a job that can't be `unique`. RQ's rules: with these it checks and writes in one step."""
    if not job._has_own_id:
        raise ValueError(_NEEDS_ID)
    if "parents" in job._fields:
        raise ValueError("unique=True is not supported with job dependencies")
    if job.has_rate_limit:
        raise ValueError("unique=True is not supported with rate-limited jobs")


def _not_yet(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise refused(f"{name}=", _INSTEAD[name])


_INSTEAD = {
    "pipeline": "leave it out: each enqueue is one transaction of its own, and enqueue_many is one for many jobs",
}


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
