"""Django tasks with options of Fusion's."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any

from fusion.contrib.django import protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(protocol.Task):
    """A Django task with options of Fusion's: those of `Queue.enqueue`, with the same names and meanings, except `timeout`.

    Options are given to `@task` (from Django 6.1 on, and with the backport), or with any version to `.using()`, for a task or for a single
    call: `send.using(timeout=5, on_commit=False).enqueue(...)`. None: the setting's value.
    """

    #: `job_timeout`.
    timeout: float | str | timedelta | None = None
    result_ttl: float | str | None = None
    ttl: float | str | None = None
    failure_ttl: float | str | None = None
    description: str | None = None
    retry: Any = None
    on_success: Any = None
    on_failure: Any = None
    on_stopped: Any = None
    meta: Any = None
    log_tag: str | None = None
    success_task_handler: str | None = None
    failed_task_handler: str | None = None
    callback_url: str | None = None
    on_lost: str | None = None
    isolate: bool | None = None
    concurrency_key: Any = None
    max_concurrent: int | None = None
    fair_key: Any = None
    rate: str | None = None
    on_conflict: str | None = None
    limit_duration: float | str | None = None
    unique_key: Any = None
    unique: bool | None = None
    unique_until: str | None = None
    unique_window: float | str | None = None
    on_duplicate: str | None = None
    max_delay: float | str | None = None
    max_queue_length: int | None = None
    keep_logs: bool | None = None
    #: False: enqueue it at once, even in an open transaction; True: when that is committed. None: as the backend and the settings have it.
    on_commit: bool | None = None

    def using(self, **options: Any) -> Any:
        """Return the task with other options: `priority`, `queue_name`, `run_after`, `backend`, and those above. TypeError for an unknown
        one."""
        return replace(self, **{name: value for name, value in options.items() if value is not None})


#: Fusion's options that a task may have.
OPTIONS = tuple(field.name for field in fields(Task) if field.name not in {known.name for known in fields(protocol.Task)})
