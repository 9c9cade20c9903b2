"""What is done with invoices, as Django's tasks."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from fusion import get_current_job
from fusion.contrib.django import protocol
from fusion.contrib.django.tasks import limits_concurrency, recurring, task
from fusion.retry import Retry


@task
def add(*numbers: int) -> int:
    return sum(numbers)


@task()
async def add_later(*numbers: int) -> int:
    return sum(numbers)


@task(takes_context=True)
def told(context: Any, *, often: int = 1) -> list[Any]:
    result = context.task_result
    if context.attempt < often:
        raise ValueError(f"attempt {context.attempt}")
    return [
        result.id,
        context.attempt,
        result.status,
        len(result.worker_ids),
        [one.exception_class_path for one in result.errors],
    ]


@task
def day_after(moment: datetime) -> datetime:
    assert moment.tzinfo is timezone.utc
    return moment.replace(day=moment.day + 1)


@task
def number_of(order: Any) -> str:
    found: str = order.number
    return found


@task
def refuse() -> None:
    raise LookupError("no such invoice")


@task
def answer_with_a_function() -> Any:
    return lambda: None


@recurring("0 6 * * *", timezone="Europe/Istanbul", id="dunning", args=[7])
@task(queue_name="mail", priority=-5)
def dun(days: int) -> int:
    return days


@limits_concurrency(key=lambda customer, *_: customer, to=2, duration="5m", group="invoices")
@task
def remind(customer: str, note: str = "") -> str:
    job = get_current_job()
    return job.id if job is not None else ""


patient = told.using(retry=Retry(max=3), timeout=20, result_ttl=60)


def helper() -> str:
    return "not a task"


def note(signal: Any, sender: Any, task_result: Any, **_: Any) -> None:
    """A line for each signal of a run, for a test that asks for it."""
    if path := os.environ.get("SHOP_SIGNALS"):
        name = "started" if signal is protocol.signals().task_started else "finished"
        with Path(path).open("a") as file:
            file.write(
                f"{name} {sender.__name__} {task_result.id} {task_result.status} {task_result.attempts} {task_result._return_value}\n"
            )


protocol.signals().task_started.connect(note)
protocol.signals().task_finished.connect(note)
