"""RQ's Job over Fusion's record of a job: before it is accepted, while it waits and runs, and after."""

# mypy: disable-error-code="override"
# (RQ's signatures differ from those of the core.)

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any

from redis import Redis

from fusion.enqueue.build import JobData, build, identity
from fusion.enqueue.options import EnqueueOptions
from fusion.exceptions import DeserializationError, SerializationError
from fusion.job import Job as CoreJob
from fusion.jobs.meta import to_json
from fusion.kernel.importing import resolve
from fusion.kernel.timeutil import now, to_iso
from fusion.rq import defaults
from fusion.rq.callbacks import Callback as Callback
from fusion.rq.callbacks import as_current, called
from fusion.rq.connections import given
from fusion.rq.dependency import Dependency as Dependency
from fusion.rq.dependency import Parents
from fusion.rq.exceptions import InvalidJobOperation, JobGone, NoSuchJobError
from fusion.rq.hints import PAGE, missing, refused
from fusion.rq.job_fields import RQFields
from fusion.rq.rate_limit import RateLimit
from fusion.rq.results import Result, results_of
from fusion.rq.retry import Retry as Retry
from fusion.rq.retry import stored
from fusion.rq.running import get_current_job as get_current_job
from fusion.rq.serializers import name_of
from fusion.rq.status import JobStatus as JobStatus
from fusion.rq.utils import parse_timeout
from fusion.rq.webhook import Webhook, urls_of, webhooks_of
from fusion.settings import get_settings
from fusion.store.access import broker_of, inspector_of
from fusion.store.layout.keys import Keys
from fusion.store.write.plain_records import DRAFT, PlainRecords


class Job(RQFields, CoreJob):  # type: ignore[misc]
    """A job. `Job.create` makes one that is not accepted yet: `Queue.enqueue_job` enqueues it, and until then it is nowhere in Redis."""

    #: Of a job that is not accepted yet: what it will be made of.
    _new: JobData | None = None
    _func: Any = None
    #: Its arguments as they were given, until it is accepted or read again.
    _given_call: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    #: Its callbacks, where functions were given.
    _given_callbacks: Mapping[str, Any] = MappingProxyType({})
    enqueue_at_front = False
    #: False if its id was made here, and not given.
    _has_own_id = True
    serializer: Any = None

    def __init__(self, id: str | None = None, connection: Redis | None = None, serializer: Any = None) -> None:
        super().__init__(id or identity(), {"created_at": to_iso(now())}, given(connection))
        self._has_own_id = id is not None
        self.serializer = serializer

    @classmethod
    def create(
        cls,
        func: Any,
        args: Iterable[Any] | None = None,
        kwargs: Any = None,
        connection: Redis | None = None,
        result_ttl: int | None = None,
        ttl: int | None = None,
        status: JobStatus | None = None,
        description: str | None = None,
        depends_on: Any = None,
        timeout: Any = None,
        retry: Any = None,
        id: str | None = None,
        origin: str = "",
        meta: dict[str, Any] | None = None,
        failure_ttl: int | None = None,
        serializer: Any = None,
        group_id: str | None = None,
        *,
        on_success: Any = None,
        on_failure: Any = None,
        on_stopped: Any = None,
        webhooks: Any = None,
        rate_limit: RateLimit | None = None,
    ) -> Job:
        """Return a job of this call, which is not accepted yet. Raises what the enqueue of such a job raises."""
        args = () if args is None else args
        kwargs = {} if kwargs is None else kwargs
        if not isinstance(args, (tuple, list)):
            raise TypeError(f"{args!r} is not a valid args list")
        if id is not None and not isinstance(id, str):
            raise TypeError(f"id must be a string, not {type(id)}")
        if not isinstance(kwargs, dict):
            raise TypeError(f"{kwargs!r} is not a valid kwargs dict")
        parents = Parents(depends_on)
        limit = parse_timeout(timeout)
        urls = urls_of(webhooks)
        options = EnqueueOptions(
            job_timeout=limit if limit is None or limit > 0 else -1,
            result_ttl=_kept(parse_timeout(result_ttl)),
            ttl=None if ttl is None else _positive("ttl", parse_timeout(ttl)),
            failure_ttl=_kept(parse_timeout(failure_ttl)),
            description=description,
            job_id=id,
            on_success=_callback(on_success),
            on_failure=_callback(on_failure),
            on_stopped=_callback(on_stopped),
            meta=meta,
            depends_on=parents.core(),
            retry=retry,
            concurrency_key=None if rate_limit is None else rate_limit.key,
            max_concurrent=None if rate_limit is None else rate_limit.concurrency,
            success_task_handler=urls.get("finished"),
            failed_task_handler=urls.get("failed"),
        )
        given_times = {"result_ttl": options.result_ttl, "failure_ttl": options.failure_ttl, "timeout": options.job_timeout}
        usual = [name for name, value in given_times.items() if value is None]
        if defaults.of_rq():
            options.on_lost = "requeue" if retry is not None else "fail"
            options.job_timeout = defaults.DEFAULT_TIMEOUT if options.job_timeout is None else options.job_timeout
            options.result_ttl = defaults.DEFAULT_RESULT_TTL if options.result_ttl is None else options.result_ttl
            options.failure_ttl = defaults.DEFAULT_FAILURE_TTL if options.failure_ttl is None else options.failure_ttl
        job = cls.__new__(cls)
        job._make(func, tuple(args), kwargs, options, serializer)
        fields = job._fields
        if defaults.of_rq():
            fields["retry"] = stored(retry)
        if usual:
            fields["usual"] = " ".join(usual)
        fields |= {"created_at": to_iso(now()), "status": (status or JobStatus.CREATED).value, "origin": origin}
        if group_id is not None:
            fields["group_id"] = group_id
        job.connection, job._outdated, job._meta = given(connection), False, None
        if meta:
            job._meta = dict(meta)
        job._has_own_id = id is not None
        job.enqueue_at_front = parents.at_front
        return job

    def _make(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: EnqueueOptions, serializer: Any) -> None:
        settings = get_settings()
        wanted = name_of(serializer)
        try:
            data = build(func, args, kwargs, options, settings, "json")
        except SerializationError as error:
            if wanted == "json" or not settings.allow_pickle:
                raise SerializationError(
                    f"{error.text()}; RQ would pickle it. Send a value that JSON carries, or, if all producers are trusted, set "
                    f"FUSION_ALLOW_PICKLE=1: see {PAGE}"
                ) from None
            data = build(func, args, kwargs, options, settings, "pickle")
        self.id, self._new, self.serializer = data.new.id, data, serializer
        self._func = None if isinstance(func, str) else func
        self._given_call = args, kwargs
        given = {"on_success": options.on_success, "on_failure": options.on_failure, "on_stopped": options.on_stopped}
        self._given_callbacks = {name: found for name, one in given.items() if callable(found := getattr(one, "func", one))}
        self._fields = dict(data.new.fields)

    def get_id(self) -> str:
        """Return its id."""
        return self.id

    def _settle(self) -> None:
        """Write `meta` into the fields, and whether the job is repeated, as they will be sent."""
        self._put("ties", self._text("ties").replace("r", "") + ("r" if self.repeats_left else "") or None)
        if self._meta is not None:
            self._put("meta", to_json("meta", self._meta) if self._meta else None)

    def _drop_parent(self, parent_id: str) -> None:
        """Have a job that is not accepted yet not wait for this one."""
        left = [sign for sign in json.loads(self._text("parents")) if sign.lstrip("?~") != parent_id]
        self._put("parents", json.dumps(left) if left else None)
        if not left:
            self._put("ties", self._text("ties").replace("p", "") or None)

    @classmethod
    def key_for(cls, job_id: str) -> str:
        """Return the key of a job's record."""
        return Keys(get_settings().prefix).job(job_id)

    @classmethod
    def dependents_key_for(cls, job_id: str) -> str:
        """Return the key of the jobs that wait for a job."""
        return Keys(get_settings().prefix).dependents(job_id)

    @property
    def key(self) -> str:
        """The key of its record."""
        return self.key_for(self.id)

    @property
    def dependents_key(self) -> str:
        """The key of the jobs that wait for it."""
        return self.dependents_key_for(self.id)

    # -- finding

    @classmethod
    def fetch(cls, id: str, connection: Redis | None = None, serializer: Any = None) -> Job:
        """Return the job with this id, or of the run `job:run`. NoSuchJobError."""
        job = cls(parse_job_id(id), connection, serializer)
        job.refresh()
        return job

    @classmethod
    def fetch_many(cls, job_ids: Iterable[str], connection: Redis | None = None, serializer: Any = None) -> list[Job | None]:
        """Return a job or None for each id."""
        client = given(connection)
        ids = [parse_job_id(one) for one in job_ids]
        rows = inspector_of(client).jobs(ids)
        return [cls._of_row(one, row, client) if row else None for one, row in zip(ids, rows, strict=True)]

    @classmethod
    def _of_row(cls, id: str, row: Any, connection: Redis) -> Job | None:
        job: Any = cls.of(id, dict(row), connection)
        return job if not job._is_over() else None

    def _is_over(self) -> bool:
        """Return True for a job that RQ would have forgotten: its `result_ttl` is over, or its `ttl` while it waited."""
        status, ended, kept = self._text("status"), self.ended_at, self._seconds("result_ttl")
        if status == "finished" and ended is not None and kept is not None and kept >= 0:
            return bool((now() - ended).total_seconds() > kept)
        waits_since = self.enqueued_at
        if status == "queued" and self.ttl is not None and waits_since is not None:
            return bool((now() - waits_since).total_seconds() > self.ttl)
        return bool(status == "canceled" and self._text("reason") == "expired")

    def refresh(self) -> None:
        """Read the job again. NoSuchJobError if it is gone."""
        super().refresh()
        self._new = None
        if self._is_over():
            raise NoSuchJobError(f"no job {self.id!r}: its result_ttl or its ttl is over")

    # -- how it stands

    def get_status(self, refresh: bool = True) -> JobStatus:
        """Return its state now, or with `refresh=False` as last read. InvalidJobOperation, which is a NoSuchJobError here, if it is gone."""
        if refresh and self._new is None:
            try:
                super().get_status()
            except NoSuchJobError as error:
                raise JobGone(error.text()) from None
        return JobStatus(self._text("status"))

    @property
    def is_deferred(self) -> bool:
        """True while it waits for other jobs."""
        return self.get_status() is JobStatus.DEFERRED

    @property
    def is_ready_to_enqueue(self) -> bool:
        """False: Fusion has no such state."""
        return False

    is_queued = property(lambda self: self.get_status() is JobStatus.QUEUED)
    is_started = property(lambda self: self.get_status() is JobStatus.STARTED)
    is_finished = property(lambda self: self.get_status() is JobStatus.FINISHED)
    is_failed = property(lambda self: self.get_status() is JobStatus.FAILED)
    is_scheduled = property(lambda self: self.get_status() is JobStatus.SCHEDULED)
    is_canceled = property(lambda self: self.get_status() is JobStatus.CANCELED)
    is_stopped = property(lambda self: self.get_status() is JobStatus.STOPPED)

    def set_status(self, status: JobStatus, pipeline: Any = None) -> None:
        """Refuse: a state moves with the job's place. Before the job is accepted its state is only a word."""
        if not self._is_draft:
            raise refused(
                "set_status()", "use cancel(), requeue(), stop or delete(): a job's state and its place change together"
            )
        self._fields["status"] = JobStatus(status).value

    def get_meta(self, refresh: bool = True) -> dict[str, Any]:
        """Return `meta`, read again."""
        if refresh and self._new is None:
            (raw,) = inspector_of(self.connection).fields(self.id, "meta")
            self._fields["meta"], self._meta = raw, None
        return self.meta

    def return_value(self, refresh: bool = False) -> Any:
        """Return the task's result, None while it has not finished."""
        if refresh:
            self.refresh()
        return self.result

    @property
    def result(self) -> Any:
        """The task's result; None while it has not finished, and after its `result_ttl`."""
        try:
            found = None if self._new is not None else super().result
        except NoSuchJobError:
            return None
        return None if self._text("status") in ("failed", "stopped") else found  # an earlier run of it may have finished

    def results(self) -> list[Result]:
        """Return how its runs ended, the newest first."""
        return results_of(self, super().results())

    def latest_result(self, timeout: float = 0) -> Result | None:
        """Return how its last run ended; None if none has. With a `timeout` in seconds, wait for a job without a result until it has ended."""
        found: Any = super().latest_result(timeout)  # one of `results`
        return found  # type: ignore[no-any-return]

    @property
    def _exc_info(self) -> str | None:
        return super().exc_info

    @property
    def exc_info(self) -> str | None:
        """The traceback of its last failed run. It is read again; NoSuchJobError if the job is gone."""
        if self._new is None:
            self.refresh()
        return super().exc_info

    # -- its registries

    @property
    def failed_job_registry(self) -> Any:
        """The failed jobs of its queue."""
        return self._registry("FailedJobRegistry")

    @property
    def started_job_registry(self) -> Any:
        """The running jobs of its queue."""
        return self._registry("StartedJobRegistry")

    @property
    def finished_job_registry(self) -> Any:
        """The finished jobs of its queue."""
        return self._registry("FinishedJobRegistry")

    def _registry(self, name: str) -> Any:
        return getattr(import_module("fusion.rq.registry"), name)(self.origin, self.connection, type(self))

    @property
    def execution_registry(self) -> Any:
        """Its runs that are under way."""
        return import_module("fusion.rq.executions").ExecutionRegistry(self.id, self.connection)

    def get_executions(self) -> list[Any]:
        """Return its runs that are under way: one, or none."""
        found: list[Any] = self.execution_registry.get_executions()
        return found

    # -- its call

    @property
    def _call(self) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        if "data" not in self._fields:
            raise DeserializationError(f"job {self.id} has no function: make it with Job.create, or read it with Job.fetch")
        return super()._call

    @property
    def args(self) -> tuple[Any, ...]:
        """Its arguments: until it is accepted the objects that were given, then copies as a worker gets them."""
        return self._given_call[0] if self._new is not None and self._given_call is not None else super().args

    @property
    def kwargs(self) -> dict[str, Any]:
        """Its keyword arguments, as `args`."""
        return self._given_call[1] if self._new is not None and self._given_call is not None else super().kwargs

    @property
    def instance(self) -> Any:
        """The object whose method it calls, of a job that was made here; None for a job from Redis."""
        owner = getattr(self._func, "__self__", None)
        if owner is None and self.func_name:  # an error for a job that has no function
            return None
        return None if isinstance(owner, (type, ModuleType)) else owner

    @property
    def func(self) -> Any:
        """Its function. One that was not given here is imported only if the allow-list has it."""
        return self._func if self._func is not None else resolve(self.func_name, get_settings().tasks)

    def _function(self, field: str) -> Any:
        name = self._callback_name(field)
        return None if name is None else resolve(name, get_settings().tasks)

    success_callback = property(lambda self: self._function("on_success"), doc="The function of `on_success`; None without one.")
    failure_callback = property(lambda self: self._function("on_failure"), doc="The function of `on_failure`; None without one.")
    stopped_callback = property(lambda self: self._function("on_stopped"), doc="The function of `on_stopped`; None without one.")

    @property
    def webhooks(self) -> list[Webhook]:
        """The webhooks that are called at its end."""
        handlers = {"finished": "success_task_handler", "failed": "failed_task_handler"}
        return webhooks_of({status: url for status, name in handlers.items() if (url := self._text(name))})

    # -- its parents

    @property
    def dependency(self) -> Job | None:
        """The first job that it waits for, or waited for; None without one."""
        found = self.fetch_dependencies()
        return found[0] if found else None

    @property
    def dependency_ids(self) -> list[str]:
        """The ids of the jobs that it waits for, or waited for."""
        return super().dependency_ids

    # Programs read these of RQ's.
    _dependency_ids = property(lambda self: list(self.dependency_ids))
    _dependency_id = property(lambda self: next(iter(self.dependency_ids), None))

    def fetch_dependencies(self, watch: bool = False, pipeline: Any = None) -> list[Job]:
        """Return the jobs that it waits for, or waited for, which are still there."""
        if watch or pipeline is not None:
            raise refused("fetch_dependencies(watch=, pipeline=)", "leave both out: nothing has to be watched")
        return [job for job in self.fetch_many(self.dependency_ids, self.connection) if job is not None]

    # -- changing it

    def save(self, pipeline: Any = None, include_meta: bool = True, include_result: bool = True) -> None:
        """Store a job that is not accepted yet as a draft, for a year. Of an accepted job, store `meta`: programs change nothing else of it."""
        _no_pipeline(pipeline)
        if "data" not in self._fields:
            raise ValueError(f"job {self.id} has no function: make it with Job.create")
        if self._is_draft:
            self._settle()
            fields = {name: value for name, value in self._fields.items() if name != "func"}
            self._records.write(self.id, {**fields, DRAFT: 1}, defaults.DEFAULT_FAILURE_TTL)
            self._new, self._fields[DRAFT] = None, 1
        elif include_meta:
            self.save_meta()

    @property
    def _is_draft(self) -> bool:
        return self._new is not None or DRAFT in self._fields

    @property
    def _records(self) -> PlainRecords:
        return PlainRecords(self.connection, get_settings().prefix)

    def cancel(self, pipeline: Any = None, enqueue_dependents: bool = False, remove_from_dependencies: bool = False) -> str:
        """Cancel it. InvalidJobOperation if it is canceled already, or has ended. Its children wait on; with `enqueue_dependents` they wait for
        it no longer."""
        if pipeline is not None and self.has_rate_limit:
            raise InvalidJobOperation(f"job {self.id} has a rate limit, so cancel() takes no pipeline")
        _no_pipeline(pipeline)
        if self.get_status() is JobStatus.CANCELED:
            raise InvalidJobOperation(f"Cannot cancel already canceled job: {self.id}")
        answer = self._cancel(enqueue_dependents)
        if enqueue_dependents:
            while broker_of(self.connection).release()[0]:  # what is left, if this dies, the next worker does
                pass
        return answer

    def requeue(self, at_front: bool = False) -> Job:
        """Requeue it, if it failed, was canceled or stopped; return it. With `at_front` it is the next to run. InvalidJobOperation."""
        super().requeue(at_front=at_front)
        for field in ("started_at", "ended_at", "exc_info"):
            self._put(field, None)
        if self.has_rate_limit:
            self.get_status()  # whether it got a slot
        return self

    def delete(self, pipeline: Any = None, remove_from_queue: bool = True, delete_dependents: bool = False) -> None:
        """Delete it, for good. InvalidJobOperation while it runs."""
        _no_pipeline(pipeline)
        if delete_dependents:
            self.delete_dependents()
        if self._is_draft:
            self._records.drop_draft(self.id)
        else:
            super().delete(purge=True)

    def delete_dependents(self, pipeline: Any = None) -> None:
        """Delete the jobs that wait for it, and those that wait for them."""
        _no_pipeline(pipeline)
        for child in self.fetch_many(self.dependent_ids, self.connection):
            if child is not None:
                child.delete(delete_dependents=True)

    def perform(self) -> Any:
        """Call its function here as the current job, and return the result. Nothing is stored."""
        function, args, kwargs = self.func, self.args, self.kwargs
        with as_current(self):
            return called(function, *args, **kwargs)

    def dependencies_are_met(self, parent_job: Any = None, pipeline: Any = None, **options: Any) -> bool:
        """Return True if all jobs that it waits for have finished, may have failed, or are gone."""
        enough = ("finished", "failed", "stopped") if self.allow_dependency_failures else ("finished",)
        return all(job.get_status(refresh=False) in enough for job in self.fetch_dependencies())

    def to_dict(self, include_meta: bool = True, include_result: bool = True) -> dict[str, Any]:
        """Return the fields of its record."""
        without = {"meta"} if not include_meta else set()
        return {name: value for name, value in self._fields.items() if name not in without}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CoreJob) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, enqueued_at={self.enqueued_at!r})"

    def __str__(self) -> str:
        return f"<{type(self).__name__} {self.id}: {self.description}>"


def _callback(value: Any) -> Any:
    return value if value is None or isinstance(value, Callback) else Callback(value)


def _kept(seconds: int | None) -> int | None:
    return seconds if seconds is None or seconds >= 0 else -1


def _positive(name: str, value: int | None) -> int | None:
    if value is not None and value <= 0:
        raise ValueError(f"Job {name} must be greater than 0")
    return value


def _no_pipeline(pipeline: Any) -> None:
    if pipeline is not None:
        raise refused("pipeline=", "leave it out: each call of Fusion is one transaction of its own")


def parse_job_id(job_or_execution_id: str) -> str:
    """Return the job's id of `job` or `job:run`."""
    return job_or_execution_id.partition(":")[0]


def cancel_job(job_id: str, connection: Redis, serializer: Any = None, enqueue_dependents: bool = False) -> None:
    """Cancel the job with this id. NoSuchJobError, InvalidJobOperation."""
    Job.fetch(job_id, connection).cancel(enqueue_dependents=enqueue_dependents)


def requeue_job(job_id: str, connection: Redis, serializer: Any = None) -> Job:
    """Requeue the job with this id, and return it. NoSuchJobError, InvalidJobOperation."""
    return Job.fetch(job_id, connection).requeue()


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
