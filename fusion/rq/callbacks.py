"""RQ's `Callback`: a function to call at a job's end, and its own timeout."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import fusion.callbacks
from fusion.context import get_current_job, set_current_job
from fusion.rq.defaults import CALLBACK_TIMEOUT
from fusion.rq.hints import missing
from fusion.rq.timeouts import JobTimeoutException
from fusion.rq.utils import parse_timeout


class Callback(fusion.callbacks.Callback):
    """A function, or its path, and the seconds that it may take.

    It runs in the job's process, as `func(job, connection, result)`, `func(job, connection, type, value, traceback)` or, for a stopped job,
    `func(job, connection)`. The connection is opened on first use. An error in it is reported, and never changes the job's outcome: RQ has the
    job fail for one of `on_success`.
    """

    def __init__(self, func: str | Callable[..., Any], timeout: Any | None = None) -> None:
        if not isinstance(func, str) and not inspect.isfunction(func) and not inspect.isbuiltin(func):
            raise ValueError("Callback `func` must be a string or function")
        self.func = func
        super().__init__(func, parse_timeout(timeout) if timeout else CALLBACK_TIMEOUT)


def execute_success_callback(job: Any, death_penalty_class: Any, result: Any) -> None:
    """Call the job's `on_success` here, within its time. Workers call callbacks by themselves."""
    _execute(job, death_penalty_class, job.success_callback, job.success_callback_timeout, result)


def execute_failure_callback(job: Any, death_penalty_class: Any, *exc_info: Any) -> None:
    """Call the job's `on_failure` here, within its time."""
    _execute(job, death_penalty_class, job.failure_callback, job.failure_callback_timeout, *exc_info)


def execute_stopped_callback(job: Any, death_penalty_class: Any) -> None:
    """Call the job's `on_stopped` here, within its time."""
    _execute(job, death_penalty_class, job.stopped_callback, job.stopped_callback_timeout)


def _execute(job: Any, death_penalty_class: Any, callback: Any, seconds: int, *args: Any) -> None:
    if callback is None:
        return
    if inspect.iscoroutinefunction(callback):
        raise TypeError(f"{callback!r}: coroutine functions are not supported as callbacks")
    with death_penalty_class(seconds, JobTimeoutException, job_id=job.id):
        callback(job, job.connection, *args)


def called(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function, or run a coroutine function; return its result."""
    value = function(*args, **kwargs)
    return asyncio.run(value) if inspect.iscoroutine(value) else value


@contextmanager
def as_current(job: Any) -> Iterator[None]:
    """Have this be the current job while the block runs."""
    before = get_current_job()
    set_current_job(job, among_others=True)
    try:
        yield
    finally:
        set_current_job(before, among_others=True)


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
