"""The options of an enqueue as types, made of their declarations in `fusion.enqueue.options` by `make reference`: edit those.

For `**options: Unpack[...]`; imported by type checkers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypedDict

from fusion.callbacks import Callback
from fusion.enqueue.kinds import AnyBatch
from fusion.retry import Retry

Func = str | Callable[..., Any]


class EntryJobOptions(TypedDict, total=False):
    """Options of the jobs of a cron entry."""

    #: Higher runs first.  [default: moderate]
    priority: int | str | None
    #: How long it may run: 30, 90s, 5m, 2h; -1 for no limit.
    job_timeout: float | str | None
    #: How long its result is kept; -1 for ever.
    result_ttl: float | str | None
    #: Expire it if it has not started within this time.
    ttl: float | str | None
    #: How long it is kept when it fails.
    failure_ttl: float | str | None
    #: What lists show instead of the function's name.
    description: str | None
    #: When it is tried again after a failure.
    retry: Retry | None
    #: Called in the job's process when it succeeded.
    on_success: Callback | Func | None
    #: Called in the job's process when it failed.
    on_failure: Callback | Func | None
    #: Called in the job's process when it was stopped and its task has ended.
    on_stopped: Callback | Func | None
    #: Your own data for it, as job.meta.
    meta: Mapping[str, Any] | None
    #: Task and type in the event log, e.g. SMS_OTP.
    log_tag: str | None
    #: URL to call when it succeeds.
    success_task_handler: str | None
    #: URL to call when it fails or expires.
    failed_task_handler: str | None
    #: URL to call when it ends in any way.
    callback_url: str | None
    #: When its worker is lost: run again (requeue), or fail.  [default: requeue]
    on_lost: str | None
    #: Run it in a process of its own, even in a worker with warm processes.
    isolate: bool
    #: Keep the last lines that it prints and logs also when it succeeds.
    keep_logs: bool
    #: Limit how many jobs with this key run at once.
    concurrency_key: str | Callable[..., str] | None
    #: How many jobs of its key run at once; without a key, of its function.
    max_concurrent: int | None
    #: Fair share: in a queue, the keys of one priority take turns.
    fair_key: str | Callable[..., str] | None
    #: How many jobs of its key, or without a key of its function, may start in a time: 100/60s.
    rate: str | None
    #: When its key is at its limit: wait (block), or be canceled at once (discard).  [default: block]
    on_conflict: str | None
    #: How long it holds its slot after its start; it runs on without one.
    limit_duration: float | str | None
    #: Only one job with this key is accepted until it ends, see unique_until.
    unique_key: str | Callable[..., str] | None
    #: A unique key made of the function and its arguments.
    unique: bool
    #: Until when it holds its unique key: it is accepted, starts, or ends.  [default: end]
    unique_until: str | None
    #: How long the unique key stays taken after that.
    unique_window: float | str | None
    #: When another job has its unique key: enqueue nothing (skip), refuse it (raise), or replace that one (replace).  [default: skip]
    on_duplicate: str | None


class JobOptions(EntryJobOptions, total=False):
    """Options of a job."""

    #: Its id.  [default: a new one]
    job_id: str | None
    #: Put it before all others of its priority.
    at_front: bool
    #: Delay it by this time: 30, 90s, 5m, 2h, 1d.
    enqueue_in: float | str | timedelta | None
    #: Delay it until this time: 2030-01-31T09:00+01:00; the zone is needed.
    enqueue_at: datetime | None
    #: With on_duplicate replace: due at most this long after the first of the replaced jobs.
    max_delay: float | str | None
    #: The batch that it joins.
    batch: AnyBatch | str | None
    #: The job that it waits for; it fails if that one does not finish.
    depends_on: Any


class CallOptions(JobOptions, total=False):
    """Options of a job and of the call that sends it."""

    #: Refuse it if more jobs than that would wait in the queue.
    max_queue_length: int | None
    #: Wait until replicas have it (replicated), or only the primary.
    durability: str | None
    #: How many replicas must have it, with durability replicated.
    replicas: int | None
    #: How long to wait for the replicas.
    replicas_timeout: float | str | None
    #: Enqueue it when the database transaction is committed, if an integration tracks one.
    on_commit: bool | None


class TaskOptions(EntryJobOptions, total=False):
    """Those of `@job`, where `batch` is another thing."""

    #: Its id.  [default: a new one]
    job_id: str | None
    #: Put it before all others of its priority.
    at_front: bool
    #: Delay it by this time: 30, 90s, 5m, 2h, 1d.
    enqueue_in: float | str | timedelta | None
    #: Delay it until this time: 2030-01-31T09:00+01:00; the zone is needed.
    enqueue_at: datetime | None
    #: Refuse it if more jobs than that would wait in the queue.
    max_queue_length: int | None
    #: With on_duplicate replace: due at most this long after the first of the replaced jobs.
    max_delay: float | str | None
    #: The job that it waits for; it fails if that one does not finish.
    depends_on: Any
    #: Wait until replicas have it (replicated), or only the primary.
    durability: str | None
    #: How many replicas must have it, with durability replicated.
    replicas: int | None
    #: How long to wait for the replicas.
    replicas_timeout: float | str | None
    #: Enqueue it when the database transaction is committed, if an integration tracks one.
    on_commit: bool | None
