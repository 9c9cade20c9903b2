"""Tasks, and callbacks and hooks that do not let their process be."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fusion
from fusion.context import CurrentJob
from fusion.middleware import WorkerMiddleware
from tests.jobs.basic import witness


def returns(seen: str) -> str:
    """Ends at once."""
    witness(seen, "ran")
    return "done"


async def awaits(seen: str) -> str:
    """The same as a coroutine."""
    witness(seen, "ran")
    await asyncio.sleep(0)
    return "done"


def raises(seen: str) -> None:
    """Fails at once."""
    witness(seen, "ran")
    raise ValueError("no")


def late(seen: str) -> None:
    """Ends by its timeout, wherever that is raised."""
    witness(seen, "ran")
    while True:
        time.sleep(0.02)


@fusion.job(batch=10, batch_wait=0.2)
def together(jobs: list[CurrentJob]) -> Iterator[tuple[CurrentJob, str]]:
    """Answers for each of them."""
    for job in jobs:
        with open(job.args[0], "a") as file:
            file.write(f"ran {job.id} {os.getpid()}\n")
        yield job, "done"


def blocks(job: Any, connection: Any, *rest: Any) -> None:
    """Waits in C, where nothing is raised."""
    time.sleep(600)


def marks_and_blocks(job: Any, connection: Any, *rest: Any) -> None:
    """Shows that it runs, by a file beside the one that its task was given."""
    Path(f"{job.args[0]}.callback").touch()
    time.sleep(600)


def exits(job: Any, connection: Any, *rest: Any) -> None:
    """Ends its process."""
    os._exit(0)


def crashes(job: Any, connection: Any, *rest: Any) -> None:
    """Takes its process down."""
    ctypes.string_at(0)


def is_killed(job: Any, connection: Any, *rest: Any) -> None:
    """Takes its process down, as others do to one from outside."""
    os.kill(os.getpid(), signal.SIGKILL)


class Blocking(WorkerMiddleware):
    """Waits in C when a task is over."""

    def around_job(self, job: Any) -> Iterator[None]:
        try:
            yield
        finally:
            time.sleep(600)


class Killing(WorkerMiddleware):
    """Takes the process down when a task is over."""

    def around_job(self, job: Any) -> Iterator[None]:
        try:
            yield
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
