"""Tasks that take many jobs in one call."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from fusion import job
from fusion.context import CurrentJob, get_current_job

Answers = Iterator[tuple[CurrentJob, Any]]


def say(path: str, word: str, job_id: str) -> None:
    """A line of a witness file."""
    with Path(path).open("a") as file:
        file.write(f"{word} {job_id} {os.getpid()}\n")


@job("g", batch=10, batch_wait="300ms")
def send(jobs: list[CurrentJob]) -> Answers:
    """Answers by each job's first argument: a number is doubled, a text raises it, None is not answered, but alone."""
    assert len(jobs) == 1 or get_current_job() is None
    for one in jobs:
        value = one.args[0]
        if isinstance(value, str):
            yield one, ValueError(value)
        elif value is not None or len(jobs) == 1:
            yield one, [value and value * 2, len(jobs), os.getpid()]


@job("g", batch=10)
async def send_async(jobs: list[CurrentJob]) -> AsyncIterator[tuple[CurrentJob, Any]]:
    """The same as a coroutine's."""
    for one in jobs:
        yield one, len(jobs)


@job("g", batch=10)
def dies(jobs: list[CurrentJob], path: str = "") -> Answers:
    """Answers the first, and does with the next what that says: dies, hangs, raises."""
    for one in jobs:
        say(one.args[1], str(len(jobs)), one.id)
    for one in jobs:
        if one.args[0] == "die":
            signal.raise_signal(signal.SIGSEGV)  # of this thread: of the process alone others could go on for a moment
        if one.args[0] == "hang":
            time.sleep(30)
        yield one, len(jobs)


def called(job: CurrentJob, connection: None, result: Any) -> None:
    """A callback that says for whom it is called."""
    current = get_current_job()
    say(job.args[1], f"called:{current.id if current else None}", job.id)
