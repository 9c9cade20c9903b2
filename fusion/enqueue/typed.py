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
    #: Expire it when it has not started by then.
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
    #: Called in the job's process when it was stopped and let its task end.
    on_stopped: Callback | Func | None
    #: Data of yours beside it, as job.meta.
    meta: Mapping[str, Any] | None
    #: Task and type in the event log, e.g. SMS_OTP.
    log_tag: str | None
    #: URL that is told of its success.
    success_task_handler: str | None
    #: URL that is told of its failure.
    failed_task_handler: str | None
    #: URL that is told of either end.
    callback_url: str | None
    #: When its worker is lost: run again (requeue), or fail.  [default: requeue]
    on_lost: str | None
    #: A process of its own, in a worker with warm processes too.
    isolate: bool
    #: Of the jobs with this key only so many run at once.
    concurrency_key: str | Callable[..., str] | None
    #: How many of its key, without one of its function.
    max_concurrent: int | None
    #: Whose job it is: in a queue the keys of one priority take turns.
    fair_key: str | Callable[..., str] | None
    #: How many of its key, without one of its function, may start in a time: 100/60s.
    rate: str | None
    #: When as many of its key run: wait (block), or be canceled at once (discard).  [default: block]
    on_conflict: str | None
    #: How long after its start others of its key have to wait for it; it runs on.
    limit_duration: float | str | None
    #: Only one job with this key is accepted until it ends, see unique_until.
    unique_key: str | Callable[..., str] | None
    #: A unique key made of the function and its arguments.
    unique: bool
    #: Until when its key is its own: it is accepted, starts, or ends.  [default: end]
    unique_until: str | None
    #: How long after that the key is still taken.
    unique_window: float | str | None
    #: When another has its key: enqueue nothing (skip), refuse it (raise), or take its place (replace).  [default: skip]
    on_duplicate: str | None


class JobOptions(EntryJobOptions, total=False):
    """Options of a job."""

    #: Its id.  [default: a new one]
    job_id: str | None
    #: Before all others of its priority.
    at_front: bool
    #: Hold it back so long: 30, 90s, 5m, 2h, 1d.
    enqueue_in: float | str | timedelta | None
    #: Hold it back until then: 2030-01-31T09:00+01:00; the zone is needed.
    enqueue_at: datetime | None
    #: Of one that takes others' places: due that long after the first of them at the latest.
    max_delay: float | str | None
    #: The batch that it joins.
    batch: AnyBatch | str | None
    #: The job that it waits for; it fails should that one not finish.
    depends_on: Any


class CallOptions(JobOptions, total=False):
    """Options of a job and of the call that sends it."""

    #: Refuse it if more jobs than that would wait in the queue.
    max_queue_length: int | None
    #: Wait until replicas have it (replicated), or for the primary alone.
    durability: str | None
    #: How many replicas must have it, with durability replicated.
    replicas: int | None
    #: For how long they are waited for.
    replicas_timeout: float | str | None
    #: Enqueue it when the transaction of the database is committed, where an integration knows of one.
    on_commit: bool | None


class TaskOptions(EntryJobOptions, total=False):
    """Those of `@job`, where `batch` is another thing."""

    #: Its id.  [default: a new one]
    job_id: str | None
    #: Before all others of its priority.
    at_front: bool
    #: Hold it back so long: 30, 90s, 5m, 2h, 1d.
    enqueue_in: float | str | timedelta | None
    #: Hold it back until then: 2030-01-31T09:00+01:00; the zone is needed.
    enqueue_at: datetime | None
    #: Refuse it if more jobs than that would wait in the queue.
    max_queue_length: int | None
    #: Of one that takes others' places: due that long after the first of them at the latest.
    max_delay: float | str | None
    #: The job that it waits for; it fails should that one not finish.
    depends_on: Any
    #: Wait until replicas have it (replicated), or for the primary alone.
    durability: str | None
    #: How many replicas must have it, with durability replicated.
    replicas: int | None
    #: For how long they are waited for.
    replicas_timeout: float | str | None
    #: Enqueue it when the transaction of the database is committed, where an integration knows of one.
    on_commit: bool | None
