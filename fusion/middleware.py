"""Hooks: code of yours, or of an integration, around every enqueue and around every run of a job (docs/middleware.md).

Lean: task modules import this in every job's process.
"""

from __future__ import annotations

import _thread
from collections.abc import Iterable
from importlib import import_module

from fusion.exceptions import ConfigurationError

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from collections.abc import Sequence
    from typing import Any

    from fusion.context import CurrentJob
    from fusion.enqueue.hooked import Enqueueing as Enqueueing
    from fusion.enqueue.hooked import Held as Held
    from fusion.enqueue.hooked import Outgoing as Outgoing
    from fusion.enqueue.hooked import send_together as send_together
    from fusion.job import Job

#: What producers alone need: loaded on first use.
_OF_PRODUCERS = frozenset(("Enqueueing", "Held", "Outgoing", "send_together"))


class ProducerMiddleware:
    """Sees what this process enqueues. Derive a class, with one of these methods or both.

    They are called in the thread that enqueues, so they are plain functions. An AsyncQueue calls them on the event loop, which they
    must not block. The first one registered is called first before an enqueue, and last after it.
    """

    #: True if it tracks transactions, and holds jobs enqueued with `on_commit=True` until one is committed.
    knows_transactions = False

    def before_enqueue(self, enqueueing: Enqueueing) -> None:
        """Called when a call is about to write these jobs. It may change their `meta`, `hold()` the call, or refuse it: what this method
        raises, the call raises, and nothing is written."""

    def after_enqueue(self, enqueueing: Enqueueing, jobs: Sequence[Job]) -> None:
        """Called when the jobs were accepted; `jobs` are what the call returns. Called once per call, however often it was sent; for a held
        call when that is sent. An error that it raises is logged."""


class WorkerMiddleware:
    """Sees the jobs that run, each in its own process, thread or coroutine. Derive a class, with the methods that are needed.

    Plain functions; under `--executor asyncio` those of a coroutine are called on the event loop, which they must not block.
    """

    def prepare(self) -> None:
        """Called once in a worker, when its task modules are loaded, in the process that those of jobs are forked from. Load here what every
        job needs. It must start no thread and open no connection. If it raises, the worker logs it and claims no job until it can."""

    def around_job(self, job: CurrentJob) -> Any:
        """Called before the task: a generator function with one `yield`, which stands for the task, or a function that returns a context
        manager, or None for nothing.

        Code before the task counts towards its time limit, and if it raises, the job fails as if the task had. Code after the task has its
        own limit, 60 s for all hooks together. There `yield` raises the task's error, or else returns its result. Neither can be changed: the
        job keeps an error that is caught there, and a new error is noted as the job's `callback_error`.
        """

    def on_failure(self, job: CurrentJob, error: BaseException) -> None:
        """Called when the job has failed for good, by this error."""

    def on_retry(self, job: CurrentJob, error: BaseException) -> None:
        """Called when the job has failed by this error, and will run again."""

    def on_stopped(self, job: CurrentJob) -> None:
        """Called when the job was stopped, and its task has ended."""


if TYPE_CHECKING:
    Middleware = ProducerMiddleware | WorkerMiddleware

#: The middlewares that this process has registered, in order. Every enqueue checks whether there are any.
registered: tuple[Middleware, ...] = ()
_named: dict[str, Middleware] = {}
_lock = _thread.RLock()


def register(middleware: Middleware | type[Middleware]) -> Middleware:
    """Call a middleware from now on, in this process and those that are forked from it. The first registered is outermost, and those of the
    setting `middleware` are outside of all. Returns it, or the instance if a class was given. Registering it again does nothing. TypeError if
    it is not a middleware."""
    global registered
    made = _made(middleware)
    with _lock:
        if not any(known is made for known in registered):
            registered = (*registered, made)
    return made


def unregister(middleware: Middleware | type[Middleware]) -> None:
    """Stop calling a middleware: one that `register` returned, or any of this class. ValueError if it was not registered."""
    global registered
    with _lock:
        left = tuple(known for known in registered if known is not middleware and type(known) is not middleware)
        if len(left) == len(registered):
            raise ValueError(f"{middleware!r} is not registered here")
        registered = left


def _made(middleware: Any) -> Middleware:
    made = middleware() if isinstance(middleware, type) else middleware
    if not isinstance(made, (ProducerMiddleware, WorkerMiddleware)):
        raise TypeError(f"{middleware!r} is not a middleware: derive its class from ProducerMiddleware, WorkerMiddleware or both")
    return made


def all_of(paths: Iterable[str] | None) -> tuple[Middleware, ...]:
    """Return those that the setting `middleware` names, then the registered ones. ConfigurationError for a path that leads to none."""
    if not paths:
        return registered
    with _lock:
        for path in paths:
            if path not in _named:
                _named[path] = _found(path)
        return (*(_named[path] for path in paths), *registered)


def _found(path: str) -> Middleware:
    module, _, name = path.rpartition(".")
    try:
        return _made(getattr(import_module(module), name))
    except Exception as error:
        raise ConfigurationError(
            f"setting middleware: {path} can't be used: {type(error).__name__}: {error}; correct it", code="FUS-222"
        ) from error


def producers(paths: Iterable[str] | None) -> list[ProducerMiddleware]:
    """Return those of `all_of` that see what is enqueued."""
    return [found for found in all_of(paths) if isinstance(found, ProducerMiddleware)]


def workers(paths: Iterable[str] | None) -> list[WorkerMiddleware]:
    """Return those of `all_of` that see what runs."""
    return [found for found in all_of(paths) if isinstance(found, WorkerMiddleware)]


def name_of(middleware: object) -> str:
    """Return the name that errors use for it."""
    kind = type(middleware)
    return f"{kind.__module__}.{kind.__qualname__}"


def __getattr__(name: str) -> Any:
    if name in _OF_PRODUCERS:
        return getattr(import_module("fusion.enqueue.hooked"), name)
    raise AttributeError(f"module 'fusion.middleware' has no attribute {name!r}")
