"""Fusion: a Redis-backed priority task queue.

Names load on first use (PEP 562), so that a forked job process that only needs `get_current_job` never imports redis. `@job` is in `fusion.decorators`: `fusion.job` is a module, as in RQ.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Callback": "callbacks",
    "Connection": "store.connections",
    "FailedQueue": "failed_queue",
    "Job": "job",
    "JobStatus": "status",
    "JobTimeoutException": "exceptions",
    "PriorityQueue": "queue",
    "Queue": "queue",
    "Retry": "retry",
    "get_current_connection": "store.connections",
    "get_current_job": "context",
    "pop_connection": "store.connections",
    "push_connection": "store.connections",
}

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'fusion' has no attribute {name!r}")
    value = getattr(import_module(f"fusion.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOME))


if TYPE_CHECKING:
    from fusion.callbacks import Callback
    from fusion.context import get_current_job
    from fusion.exceptions import JobTimeoutException
    from fusion.failed_queue import FailedQueue
    from fusion.job import Job
    from fusion.queue import PriorityQueue, Queue
    from fusion.retry import Retry
    from fusion.status import JobStatus
    from fusion.store.connections import Connection, get_current_connection, pop_connection, push_connection
