"""Tasks, and middleware of workers that writes down its calls. Each note: the hook's name, what it saw, the job's id."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from fusion import Retry, get_current_job, job
from fusion.middleware import WorkerMiddleware, register

_context: ContextVar[str] = ContextVar("hooked", default="none")


def note(what: str, job_id: str) -> None:
    with open(os.environ["HOOKED_NOTES"], "a") as file:
        file.write(f"{what} {job_id}\n")


class Outer(WorkerMiddleware):
    """Notes everything, and tries what it may not do."""

    def around_job(self, job: Any) -> Iterator[None]:
        note(f"outer.before:{job.func_name.rpartition('.')[2]}", job.id)
        token = _context.set(job.id)
        try:
            value = yield
            note(f"outer.value:{value}", job.id)
        except BaseException as error:
            note(f"outer.error:{type(error).__name__}", job.id)
        finally:
            _context.reset(token)

    def on_failure(self, job: Any, error: BaseException) -> None:
        note(f"on_failure:{type(error).__name__}", job.id)

    def on_retry(self, job: Any, error: BaseException) -> None:
        note(f"on_retry:{type(error).__name__}", job.id)

    def on_stopped(self, job: Any) -> None:
        note("on_stopped", job.id)


class _Context:
    def __init__(self, job: Any) -> None:
        self.job = job

    def __enter__(self) -> None:
        note("inner.before", self.job.id)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        note(f"inner.after:{kind and kind.__name__}", self.job.id)
        return True


class Inner(WorkerMiddleware):
    """Does what the job's meta says it should, and swallows errors, which it may not."""

    def around_job(self, job: Any) -> Any:
        wish = job.meta.get("hook", "")
        if wish == "none":
            return None
        if wish.startswith("before"):
            _do(wish)
        if wish.startswith("after"):
            return _after(wish)
        return _Context(job)

    def on_failure(self, job: Any, error: BaseException) -> None:
        if job.meta.get("hook") == "on_failure":
            raise LookupError("a hook of failures")


def _after(wish: str) -> Iterator[None]:
    try:
        yield
    finally:
        _do(wish)


def _do(wish: str) -> None:
    if wish.endswith("raises"):
        raise LookupError(wish)
    if wish.endswith("dies"):
        os.kill(os.getpid(), signal.SIGKILL)
    if wish.endswith("waits"):
        time.sleep(1.3)
    if wish.endswith("hangs"):
        _nap()


def _nap() -> None:
    for _ in range(1200):  # an error reaches a thread between two of its steps
        time.sleep(0.05)


register(Inner)


def fine(value: Any = 7) -> Any:
    assert _context.get() == get_current_job().id
    return value


async def awaited(value: Any = 7) -> Any:
    return fine(value)


def raises() -> None:
    raise ValueError("the task's own")


async def raises_awaited() -> None:
    raise ValueError("the task's own")


def later() -> Any:
    return Retry(1, interval=0.01) if get_current_job().attempts == 0 else "then"


def naps() -> None:
    note("naps", get_current_job().id)
    _nap()


@job("h", batch=10)
def together(jobs: list[Any]) -> Iterator[Any]:
    for one in jobs:
        note(f"together:{len(jobs)}", one.id)
        yield one, ValueError("no") if one.args[0] == "no" else one.args[0]
