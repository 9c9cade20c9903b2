"""Fusion: a Redis-backed priority task queue.

Names load on first use (PEP 562), so that a forked job process that only needs `get_current_job` never imports redis. `job` is the
decorator, and once the module `fusion.job` is loaded that module, which can be called as the decorator.
"""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing costs every job's process 0.6 MB
    from typing import Any

__version__ = "0.1.0"

_HOME = {
    "AsyncQueue": "async_queue",
    "Batch": "batch",
    "Callback": "callbacks",
    "Connection": "store.client.connections",
    "Dependency": "dependency",
    "EmbeddedWorker": "sidecar.embedded_worker",
    "FailedFilter": "jobs.failures",
    "FailedQueue": "failed_queue",
    "Job": "job",
    "JobInterrupted": "exceptions",
    "JobStatus": "status",
    "JobStopped": "exceptions",
    "JobTimeoutException": "exceptions",
    "LockError": "exceptions",
    "LockTimeout": "exceptions",
    "Log": "log",
    "NotReplicated": "exceptions",
    "PriorityQueue": "queue",
    "Queue": "queue",
    "QueueFull": "exceptions",
    "RateLimited": "retry",
    "Retry": "retry",
    "RetryLater": "retry",
    "Scheduler": "cron.scheduler",
    "Secret": "kernel.redaction",
    "ScheduledJobRegistry": "registries",
    "StoreFull": "exceptions",
    "StoreUnavailable": "exceptions",
    "chain": "chains",
    "get_current_connection": "store.client.connections",
    "get_current_job": "context",
    "job": "decorators",
    "lock": "locks",
    "pop_connection": "store.client.connections",
    "push_connection": "store.client.connections",
    "recurring": "kernel.recurrence",
    "signature": "chains",
}

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        if name[:1].isupper() or name.endswith(
            ("_job", "_connection")
        ):  # no module of Fusion's, which `from fusion import NAME` reads first
            raise import_module("fusion.hints").missing_in_module(name, sys._getframe(1))
        raise AttributeError(f"module 'fusion' has no attribute {name!r}")
    value = getattr(import_module(f"fusion.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOME))


if TYPE_CHECKING:
    from fusion.async_queue import AsyncQueue as AsyncQueue
    from fusion.batch import Batch as Batch
    from fusion.callbacks import Callback as Callback
    from fusion.chains import chain as chain
    from fusion.chains import signature as signature
    from fusion.context import get_current_job as get_current_job
    from fusion.cron.scheduler import Scheduler as Scheduler
    from fusion.decorators import job as job
    from fusion.dependency import Dependency as Dependency
    from fusion.exceptions import JobInterrupted as JobInterrupted
    from fusion.exceptions import JobStopped as JobStopped
    from fusion.exceptions import JobTimeoutException as JobTimeoutException
    from fusion.exceptions import LockError as LockError
    from fusion.exceptions import LockTimeout as LockTimeout
    from fusion.exceptions import NotReplicated as NotReplicated
    from fusion.exceptions import QueueFull as QueueFull
    from fusion.exceptions import StoreFull as StoreFull
    from fusion.exceptions import StoreUnavailable as StoreUnavailable
    from fusion.failed_queue import FailedQueue as FailedQueue
    from fusion.job import Job as Job
    from fusion.jobs.failures import FailedFilter as FailedFilter
    from fusion.kernel.recurrence import recurring as recurring
    from fusion.kernel.redaction import Secret as Secret
    from fusion.locks import lock as lock
    from fusion.log import Log as Log
    from fusion.queue import PriorityQueue as PriorityQueue
    from fusion.queue import Queue as Queue
    from fusion.registries import ScheduledJobRegistry as ScheduledJobRegistry
    from fusion.retry import RateLimited as RateLimited
    from fusion.retry import Retry as Retry
    from fusion.retry import RetryLater as RetryLater
    from fusion.sidecar.embedded_worker import EmbeddedWorker as EmbeddedWorker
    from fusion.status import JobStatus as JobStatus
    from fusion.store.client.connections import (
        Connection as Connection,
    )
    from fusion.store.client.connections import (
        get_current_connection as get_current_connection,
    )
    from fusion.store.client.connections import (
        pop_connection as pop_connection,
    )
    from fusion.store.client.connections import (
        push_connection as push_connection,
    )
