"""Decorators above `@task`: when it runs by itself, and how many run at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from fusion.contrib.django import protocol
from fusion.contrib.django.definition import OPTIONS
from fusion.contrib.django.results import MARK, mark_of, to_priority
from fusion.kernel import recurrence


def recurring(expr: Any = None, *, every: float | str | timedelta | None = None, **options: Any) -> Callable[[Any], Any]:
    """Run a Django `@task` by a cron expression, or `every` so often, as `fusion.recurring` does. It has the task's queue, priority and
    options unless others are given here. TypeError if the decorated object is not a task.

    `@recurring("0 6 * * *", timezone="Europe/Istanbul", args=["daily"])`
    """
    recurrence.recurring(expr, every=every)  # refuses invalid arguments

    def decorate(task: Any) -> Any:
        _check(task, "recurring")
        own = {name: value for name in OPTIONS if (value := getattr(task, name, None)) is not None}
        for name in ("on_commit", "max_queue_length", "max_delay"):  # these belong to calls
            own.pop(name, None)
        if (timeout := own.pop("timeout", None)) is not None:
            own["job_timeout"] = timeout
        found = {"queue": task.queue_name, "priority": to_priority(task.priority), **own, **options}
        found["meta"] = {**(found.get("meta") or {}), MARK: mark_of(task, task.backend)}
        recurrence.recurring(expr, every=every, **found)(task.func)
        return task

    return decorate


def limits_concurrency(
    *,
    to: int = 1,
    key: Callable[..., Any] | str | None = None,
    duration: float | str | timedelta | None = None,
    on_conflict: str | None = None,
    group: str | None = None,
) -> Callable[[Any], Any]:
    """Limit the jobs of a `@task` with one key to `to` at once, over all workers.

    `key`: a text, or a function that makes one from the task's arguments; a model stands for its label and primary key. Without it the limit is
    for the whole task. `group`: tasks with the same group share their keys; else each has its own. `duration`: how long after its start a job
    holds its slot; it runs on after that. `on_conflict`: `"block"` (the default) makes the job wait, `"discard"` cancels it.
    """

    further = {"limit_duration": duration, "on_conflict": on_conflict}

    def decorate(task: Any) -> Any:
        _check(task, "limits_concurrency")
        func, home = task.func, group or task.module_path

        def concurrency_key(*args: Any, **kwargs: Any) -> str:
            found = key(*args, **kwargs) if callable(key) else key
            return home if found is None else f"{home}/{_text(found)}"

        ties: dict[str, Any] = {"concurrency_key": concurrency_key, "max_concurrent": to}
        ties |= {name: value for name, value in further.items() if value is not None}
        func.__fusion_ties__ = {**func.__dict__.get("__fusion_ties__", {}), **ties}
        return task

    return decorate


def _text(key: Any) -> str:
    from django.db.models import Model

    return f"{key._meta.label_lower}:{key.pk}" if isinstance(key, Model) else str(key)


def _check(task: Any, name: str) -> None:
    if not isinstance(task, protocol.Task):
        raise TypeError(f"@{name} of fusion.contrib.django must stand above @task, got {task!r}")
