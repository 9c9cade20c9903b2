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


@job("g", batch=5, batch_wait="60s")
def patient(jobs: list[CurrentJob]) -> Answers:
    """Says its size for each; answers one when the file is gone that this names, if it names one. A number is this many seconds, or MiB below 0."""
    held = []
    for one in jobs:
        say(one.args[0], f"of:{len(jobs)}", one.id)
    for one in jobs:
        _, gate, *_ = (*one.args, "")
        if isinstance(gate, float):
            time.sleep(max(0.0, gate))
            held.append(bytearray(b"x") * int(max(0.0, -gate) * 1024 * 1024))
            time.sleep(5 if gate < 0 else 0)
        while isinstance(gate, str) and gate and Path(gate).exists():
            time.sleep(0.01)
        yield one, len(jobs)


@job("g", batch=10)
def flaky(jobs: list[CurrentJob]) -> Answers:
    """Fails once with each."""
    for one in jobs:
        yield one, len(jobs) if one.attempts else ConnectionError("not yet")


def called(job: CurrentJob, connection: None, result: Any) -> None:
    """A callback that says for whom it is called."""
    current = get_current_job()
    say(job.args[1], f"called:{current.id if current else None}", job.id)


def failed(job: CurrentJob, connection: None, *error: Any) -> None:
    """The same of one that failed."""
    called(job, connection, None)
