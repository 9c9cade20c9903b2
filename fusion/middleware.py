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

    They are called by whoever enqueues, in his thread, so they are plain functions; of an AsyncQueue on the event loop, which they must not
    hold up. Those of the first that was registered are called first before an enqueue, and last after it.
    """

    #: It knows of transactions, and holds what is enqueued with `on_commit=True` until one is committed.
    knows_transactions = False

    def before_enqueue(self, enqueueing: Enqueueing) -> None:
        """A call is about to write these jobs. It may change their `meta`, have the call `hold()` them, or refuse it: what this raises, the
        call raises, and nothing is written."""

    def after_enqueue(self, enqueueing: Enqueueing, jobs: Sequence[Job]) -> None:
        """The jobs were accepted; these are what the call returns. Once per call, however often it was sent, and for one that was held when
        that is sent. What this raises is logged."""


class WorkerMiddleware:
    """Sees the jobs that run, each in its own process, thread or coroutine. Derive a class, with the methods that are needed.

    Plain functions; under `--executor asyncio` those of a coroutine are called on the event loop, which they must not hold up.
    """

    def around_job(self, job: CurrentJob) -> Any:
        """Called before the task: a generator function with one `yield`, which stands for the task, or a function that returns a context
        manager, or None for nothing.

        What comes before the task counts towards its time limit, and fails the job if it raises, as if the task had. What comes after it
        has a limit of its own, 60 s for all hooks together. There `yield` raises what the task raised, else returns what it returned. Neither can be
        changed: an error that is caught there is the job's all the same, and what is raised anew is noted as the job's `callback_error`.
        """

    def on_failure(self, job: CurrentJob, error: BaseException) -> None:
        """The job has failed for good, by this error."""

    def on_retry(self, job: CurrentJob, error: BaseException) -> None:
        """The job has failed by this error, and will run again."""

    def on_stopped(self, job: CurrentJob) -> None:
        """The job was stopped, and has let its task end."""


if TYPE_CHECKING:
    Middleware = ProducerMiddleware | WorkerMiddleware

#: What this process has registered, in this order. Whether there is any is asked at every enqueue.
registered: tuple[Middleware, ...] = ()
_named: dict[str, Middleware] = {}
_lock = _thread.RLock()


def register(middleware: Middleware | type[Middleware]) -> Middleware:
    """From now on call it, in this process and those that are forked from it; the first is outermost, those of the setting `middleware` are
    outside of all. Returns it, made if a class was given; once more of the same does nothing. TypeError if it is not a middleware."""
    global registered
    made = _made(middleware)
    with _lock:
        if not any(known is made for known in registered):
            registered = (*registered, made)
    return made


def unregister(middleware: Middleware | type[Middleware]) -> None:
    """Call it no more: what `register` returned, or any of this class. ValueError if it was not registered."""
    global registered
    with _lock:
        left = tuple(known for known in registered if known is not middleware and type(known) is not middleware)
        if len(left) == len(registered):
            raise ValueError(f"{middleware!r} is not registered here")
        registered = left


def _made(middleware: Any) -> Middleware:
    made = middleware() if isinstance(middleware, type) else middleware
    if not isinstance(made, (ProducerMiddleware, WorkerMiddleware)):
        raise TypeError(f"{middleware!r} is no middleware: derive its class from ProducerMiddleware, WorkerMiddleware or both")
    return made


def all_of(paths: Iterable[str] | None) -> tuple[Middleware, ...]:
    """Those that the setting `middleware` names, then those that were registered. ConfigurationError for a path that leads to none."""
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
            f"setting middleware: {path} can't be used: {type(error).__name__}: {error}; correct it"
        ) from error


def producers(paths: Iterable[str] | None) -> list[ProducerMiddleware]:
    """Of `all_of` those that see what is enqueued."""
    return [found for found in all_of(paths) if isinstance(found, ProducerMiddleware)]


def workers(paths: Iterable[str] | None) -> list[WorkerMiddleware]:
    """Of `all_of` those that see what runs."""
    return [found for found in all_of(paths) if isinstance(found, WorkerMiddleware)]


def name_of(middleware: object) -> str:
    """What errors call it."""
    kind = type(middleware)
    return f"{kind.__module__}.{kind.__qualname__}"


def __getattr__(name: str) -> Any:
    if name in _OF_PRODUCERS:
        return getattr(import_module("fusion.enqueue.hooked"), name)
    raise AttributeError(f"module 'fusion.middleware' has no attribute {name!r}")
