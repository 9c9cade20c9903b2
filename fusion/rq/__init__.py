"""RQ's names over Fusion's core, for programs that were written for RQ: `from fusion.rq import Queue, Worker`.

Names load on first use, so that a job's process which only needs `get_current_job` imports no redis. What jobs that come through here mean
is RQ's meaning, and is stored with each job (docs/from-rq.md). Pickle stays off, and only functions of the allow-list run.
"""

from __future__ import annotations

import os
from importlib import import_module

if "RQ_KEY_PREFIX" in os.environ:  # read when this is imported, as RQ does; processes that are started from here use it, too
    _prefix = os.environ["RQ_KEY_PREFIX"]
    if not _prefix or not all(one.isascii() and (one.isalnum() or one in "_.:{}-") for one in _prefix):
        raise ValueError(f"Invalid RQ_KEY_PREFIX {_prefix!r}: only letters, digits, and _ . : - {{ }} are allowed")
    os.environ.setdefault("FUSION_PREFIX", f"{_prefix}:")

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing costs every job's process 0.6 MB
    from typing import Any

_HOME = {
    "Callback": "callbacks",
    "Queue": "queue",
    "RateLimit": "rate_limit",
    "Repeat": "repeat",
    "Retry": "retry",
    "SimpleWorker": "worker",
    "SpawnWorker": "worker",
    "VERSION": "version",
    "Webhook": "webhook",
    "Worker": "worker",
    "__version__": "version",
    "cancel_job": "job",
    "get_current_job": "running",
    "requeue_job": "job",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise import_module("fusion.rq.hints").missing(__name__, name)
    value = getattr(import_module(f"fusion.rq.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOME))


if TYPE_CHECKING:
    from fusion.rq.callbacks import Callback as Callback
    from fusion.rq.job import cancel_job as cancel_job
    from fusion.rq.job import requeue_job as requeue_job
    from fusion.rq.queue import Queue as Queue
    from fusion.rq.rate_limit import RateLimit as RateLimit
    from fusion.rq.repeat import Repeat as Repeat
    from fusion.rq.retry import Retry as Retry
    from fusion.rq.running import get_current_job as get_current_job
    from fusion.rq.version import VERSION as VERSION
    from fusion.rq.webhook import Webhook as Webhook
    from fusion.rq.worker import SimpleWorker as SimpleWorker
    from fusion.rq.worker import SpawnWorker as SpawnWorker
    from fusion.rq.worker import Worker as Worker
