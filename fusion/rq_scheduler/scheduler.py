"""rq-scheduler's `Scheduler`: single jobs go to Fusion's schedule, recurring ones become cron entries."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from redis import Redis

import fusion.cron.scheduler
from fusion.cron.entry import Entry
from fusion.cron.plan import Plan
from fusion.enqueue.build import identity
from fusion.exceptions import InvalidJobOperation, NoSuchEntryError, NoSuchJobError
from fusion.rq.connections import given, url_for
from fusion.rq.defaults import DEFAULT_FAILURE_TTL, of_rq
from fusion.rq.hints import missing, refused
from fusion.rq.job import Job
from fusion.rq.queue import Queue
from fusion.rq.retry import NO_RETRIES
from fusion.rq.utils import backend_class
from fusion.rq_scheduler.recurring import CRON, INTERVAL, RecurringJob, local_zone, nth_tick, recurring
from fusion.settings import get_settings
from fusion.store.access import broker_of, inspector_of
from fusion.store.write.rq_store import RQStore

log = logging.getLogger("fusion.scheduler")

_Func = str | Callable[..., Any]
#: The group of the single jobs, which tells them from what else is scheduled.
_GROUP = "rq-scheduler"
#: Options of `enqueue_at` and `enqueue_in`, by their names there; the other keywords are the task's.
_OPTIONS = {name: name for name in ("timeout", "depends_on", "meta", "queue_name", "on_success", "on_failure", "at_front")} | {
    "job_id": "id",
    "job_ttl": "ttl",
    "job_result_ttl": "result_ttl",
    "job_description": "description",
}


class Scheduler:
    """Jobs at a time, at intervals, or by a cron expression. Single ones are enqueued by any worker, recurring ones by `fusion scheduler`
    or by `run`.

    A recurring job is a cron entry: each of its ticks is a job of its own, so `result_ttl` counts for each, and is RQ's 500 s by default.
    Naive times are UTC, as in rq-scheduler.
    """

    queue_class: type[Queue] = Queue
    job_class: type[Job] = Job

    def __init__(
        self,
        queue_name: str = "default",
        queue: Queue | None = None,
        interval: float = 60,
        connection: Redis | None = None,
        job_class: Any = None,
        queue_class: Any = None,
        name: str | None = None,
    ) -> None:
        """`interval` changes nothing: what is due is enqueued at once."""
        if connection is None:
            raise ValueError("`connection` argument is required")
        self.connection, self._queue, self.log = given(connection), queue, log
        self.queue_name = queue_name if queue is None else queue.name
        self.job_class = backend_class(self, "job_class", override=job_class)
        self.queue_class = backend_class(self, "queue_class", override=queue_class)
        self.name = name or identity()

    @property
    def pid(self) -> int:
        """The id of this process."""
        return os.getpid()

    @property
    def _entries(self) -> fusion.cron.scheduler.Scheduler:
        return fusion.cron.scheduler.Scheduler(self.connection)

    @property
    def _store(self) -> RQStore:
        return RQStore(self.connection, get_settings().prefix)

    # -- scheduling

    def enqueue_at(self, scheduled_time: datetime, func: _Func, *args: Any, **kwargs: Any) -> Job:
        """Enqueue a call for a time. `job_id`, `timeout`, `queue_name` and the like are options; the other keywords are the task's."""
        options = {option: kwargs.pop(name) for name, option in _OPTIONS.items() if name in kwargs}
        return self._once(scheduled_time, func, args, kwargs, **options)

    def enqueue_in(self, time_delta: timedelta, func: _Func, *args: Any, **kwargs: Any) -> Job:
        """Enqueue a call for a time that is this far from now. Options as of `enqueue_at`."""
        return self.enqueue_at(datetime.now(timezone.utc) + time_delta, func, *args, **kwargs)

    def schedule(
        self,
        scheduled_time: datetime,
        func: _Func,
        args: Any = None,
        kwargs: Any = None,
        interval: Any = None,
        repeat: int | None = None,
        result_ttl: int | None = None,
        ttl: int | None = None,
        timeout: Any = None,
        id: str | None = None,
        description: str | None = None,
        queue_name: str | None = None,
        meta: dict[str, Any] | None = None,
        depends_on: Any = None,
        on_success: Any = None,
        on_failure: Any = None,
        at_front: bool | None = None,
    ) -> Job:
        """Enqueue a call for a time, and with `interval` again after each of these seconds, for ever or `repeat` times in all."""
        if repeat and interval is None:
            raise ValueError("Can't repeat a job without interval argument")
        shared = {
            "id": id,
            "queue_name": queue_name,
            "result_ttl": result_ttl,
            "ttl": ttl,
            "timeout": timeout,
            "description": description,
        }
        shared |= {"depends_on": depends_on, "on_success": on_success, "on_failure": on_failure, "at_front": at_front}
        if interval is None:
            return self._once(scheduled_time, func, args, kwargs, meta=meta, **shared)
        seconds = int(interval)
        start = max(math.ceil(_aware(scheduled_time).timestamp()), math.ceil(time.time()))
        end = None if repeat is None else _moment(start + (int(repeat) - 1) * seconds)
        noted = {INTERVAL: seconds} | ({} if repeat is None else {"repeat": int(repeat)})
        return self._recurring(
            Plan.interval(seconds, _moment(start), end), func, args, kwargs, {**(meta or {}), **noted}, **shared
        )

    def cron(
        self,
        cron_string: str,
        func: _Func,
        args: Any = None,
        kwargs: Any = None,
        repeat: int | None = None,
        queue_name: str | None = None,
        result_ttl: int | None = -1,
        ttl: int | None = None,
        id: str | None = None,
        timeout: Any = None,
        description: str | None = None,
        meta: dict[str, Any] | None = None,
        use_local_timezone: bool = False,
        depends_on: Any = None,
        on_success: Any = None,
        on_failure: Any = None,
        at_front: bool = False,
    ) -> Job:
        """Enqueue a call by a cron expression, in UTC or in this machine's zone, for ever or `repeat` times in all. A `result_ttl` of -1,
        rq-scheduler's default, is RQ's 500 s here: there it kept the one record of all runs."""
        zone = local_zone() if use_local_timezone else "UTC"
        plan = Plan.cron(cron_string, timezone=zone)
        if repeat is not None:
            plan = Plan.cron(cron_string, timezone=zone, end=nth_tick(plan, int(repeat)))
        noted = {CRON: cron_string, "use_local_timezone": use_local_timezone} | (
            {} if repeat is None else {"repeat": int(repeat)}
        )
        return self._recurring(
            plan, func, args, kwargs, {**(meta or {}), **noted}, id=id, queue_name=queue_name,
            result_ttl=None if result_ttl == -1 else result_ttl, ttl=ttl, timeout=timeout, description=description,
            depends_on=depends_on, on_success=on_success, on_failure=on_failure, at_front=at_front,
        )  # fmt: skip

    def _once(
        self, at: datetime, func: _Func, args: Any, kwargs: Any, *, queue_name: Any = None, at_front: Any = None, **options: Any
    ) -> Job:
        queue = self._queue if queue_name is None and self._queue is not None else self._queue_named(queue_name)
        job_id = options.pop("id", None) or identity()
        job = queue.create_job(func, args, kwargs, job_id=job_id, group_id=_GROUP, **options)
        job.enqueue_at_front = bool(at_front) or job.enqueue_at_front
        self._store.add_to_group(_GROUP, [job.id], DEFAULT_FAILURE_TTL)
        return queue.schedule_job(job, _aware(at))

    def _queue_named(self, name: str | None) -> Queue:
        return self.queue_class(name or self.queue_name, connection=self.connection, job_class=self.job_class)

    def _recurring(
        self, plan: Plan, func: _Func, args: Any, kwargs: Any, meta: dict[str, Any], *, id: Any, queue_name: Any, timeout: Any,
        depends_on: Any, at_front: Any, **options: Any,
    ) -> Job:  # fmt: skip
        for name, value in (("depends_on", depends_on), ("at_front", at_front)):
            if value:
                raise refused(f"{name}= of a recurring job", f"leave it out, or have the task enqueue a job with {name}=")
        chosen = {name: value for name, value in options.items() if value is not None} | {"meta": meta}
        if timeout is not None:
            chosen["job_timeout"] = timeout
        if of_rq():
            chosen |= {"retry": NO_RETRIES, "on_lost": "fail"}
        entry_id = id or identity()
        queue = queue_name or self.queue_name
        entry = Entry.make(func, plan, get_settings(), id=entry_id, queue=queue, args=args or (), kwargs=kwargs, **chosen)
        self._entries.put(entry_id, lambda: entry)
        return RecurringJob.of_entry(entry, self.connection)

    # -- what is scheduled

    def cancel(self, job: Job | str) -> None:
        """Have a job not run, or a recurring one not come again. Nothing happens if it is not scheduled."""
        job_id = job if isinstance(job, str) else job.id
        try:
            self._entries.remove(job_id)
        except NoSuchEntryError:
            with suppress(NoSuchJobError, InvalidJobOperation):
                if job_id in self:
                    self.job_class(job_id, self.connection).cancel()

    def __contains__(self, item: Job | str) -> bool:
        job_id = item if isinstance(item, str) else item.id
        comes_again = any(shown.id == job_id for _, shown in recurring(self.connection))
        return comes_again or inspector_of(self.connection).due_at(job_id) is not None

    def _is_recurring(self, job_id: str) -> bool:
        try:
            return bool(self._entries.get(job_id))
        except NoSuchEntryError:
            return False

    def change_execution_time(self, job: Job, date_time: datetime) -> None:
        """Have a single job wait for another time. ValueError if it is not scheduled; NotImplementedError for a recurring one."""
        if self._is_recurring(job.id):
            raise refused("change_execution_time() of a recurring job", "call schedule() or cron() again with its id")
        try:
            job.reschedule(_aware(date_time))
        except (InvalidJobOperation, NoSuchJobError):
            raise ValueError("Job not in scheduled jobs queue") from None

    def count(self, until: Any = None) -> int:
        """Return the number of scheduled jobs, or of those that are due until then: a time, a timedelta, or Unix seconds."""
        return len(self._due(until))

    def get_jobs(
        self, until: Any = None, with_times: bool = False, offset: int | None = None, length: int | None = None
    ) -> Iterator[Any]:
        """Yield the jobs that this class has scheduled, the next one first; with `with_times` pairs of a job and its naive UTC time."""
        if (offset is None) != (length is None):
            raise ValueError("give both offset and length, or neither")
        found = self._due(until)
        chosen = found if offset is None or length is None else found[offset : None if length < 0 else offset + length]
        for due, job in chosen:
            yield (job, _moment(due).replace(tzinfo=None)) if with_times else job

    def get_jobs_to_queue(self, with_times: bool = False) -> Iterator[Any]:
        """Yield the jobs that are due."""
        return self.get_jobs(datetime.now(timezone.utc), with_times)

    def _due(self, until: Any) -> list[tuple[float, Job]]:
        """Return the jobs that this class has scheduled, with their times."""
        upto, found = _upto(until), list[tuple[float, Job]](recurring(self.connection))
        store, inspector = self._store, inspector_of(self.connection)
        ids = store.group(_GROUP)
        gone = [one for one, job in zip(ids, self.job_class.fetch_many(ids, self.connection), strict=True) if job is None]
        store.remove_from_group(_GROUP, gone)
        for job in self.job_class.fetch_many([one for one in ids if one not in gone], self.connection):
            at = inspector.due_at(job.id) if job is not None else None
            if job is not None and at is not None:
                found.append((at.timestamp(), job))
        return sorted((one for one in found if one[0] <= upto), key=lambda one: (one[0], one[1].id))

    # -- running

    def enqueue_job(self, job: Job) -> None:
        """Enqueue a job now; a recurring one goes on as planned."""
        if isinstance(job, RecurringJob):
            self._entries.run(job.id)
        else:
            job.reschedule(0)
            self.enqueue_jobs()

    def enqueue_jobs(self) -> list[Job]:
        """Enqueue the single jobs that are due, and return them. Recurring ones are enqueued by `run`."""
        due = [job for job in self.get_jobs_to_queue() if not isinstance(job, RecurringJob)]
        broker = broker_of(self.connection)
        while broker.promote()[0]:
            pass
        return due

    def run(self, burst: bool = False) -> None:
        """Run Fusion's scheduler here until INT or TERM. For the main thread, as it handles signals. `fusion scheduler` is the same; any number
        may run."""
        if burst:
            raise refused(
                "run(burst=True)", "call enqueue_jobs() for single jobs; recurring ones need run() or `fusion scheduler`"
            )
        from fusion.scheduler.loading import Sources
        from fusion.scheduler.process import SchedulerProcess

        settings = replace(get_settings(), redis_url=url_for(self.connection), name=self.name)
        SchedulerProcess(settings, Sources()).run()


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)


def _upto(until: Any) -> float:
    if until is None:
        return math.inf
    if isinstance(until, timedelta):
        return time.time() + until.total_seconds()
    return _aware(until).timestamp() if isinstance(until, datetime) else float(until)


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
