"""Hints what to use in place of RQ's names that Fusion's own classes do not have. Loaded when such a name was used, and never before."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PAGE = "docs/from-rq.md"

_REGISTRY = "fusion.rq's Queue has it; here: FailedQueue and ScheduledJobRegistry, for all queues, and `fusion jobs 'state:started queue:NAME'`"
_MODULE = {
    "Worker": "start a worker by `fusion worker`, or use EmbeddedWorker; fusion.rq has Worker",
    "SimpleWorker": "start a worker by `fusion worker --executor thread`; fusion.rq has SimpleWorker",
    "SpawnWorker": "start a worker by `fusion worker`: its jobs run in processes that are not forked from your program",
    "WorkerPool": "start several workers by `fusion start -n 4`; fusion.rq.worker_pool has WorkerPool",
    "Repeat": "use a cron entry (Scheduler, @recurring); fusion.rq has Repeat",
    "RateLimit": "use the options concurrency_key= and max_concurrent=; fusion.rq has RateLimit",
    "Webhook": "use the option callback_url=; fusion.rq has Webhook",
    "Group": "use Batch; fusion.rq.group has Group",
    "Result": "use Job.results(); fusion.rq.results has Result",
    "cancel_job": "use Job.fetch(id).cancel(); fusion.rq has cancel_job",
    "requeue_job": "use Job.fetch(id).requeue(); fusion.rq has requeue_job",
    "CronScheduler": "use Scheduler or @recurring; fusion.rq.cron has CronScheduler",
    "NoSuchJobError": "import it from fusion.exceptions",
    "InvalidJobOperation": "import it from fusion.exceptions",
    "FailedJobRegistry": "use FailedQueue; fusion.rq.registry has FailedJobRegistry",
    "StartedJobRegistry": "use `fusion jobs state:started`; fusion.rq.registry has StartedJobRegistry",
    "FinishedJobRegistry": "use `fusion jobs state:finished`; fusion.rq.registry has FinishedJobRegistry",
    "DeferredJobRegistry": "use `fusion jobs state:deferred`; fusion.rq.registry has DeferredJobRegistry",
    "CanceledJobRegistry": "use `fusion jobs state:canceled`; fusion.rq.registry has CanceledJobRegistry",
    "use_connection": "use push_connection, or give connection= to Queue and Job.fetch",
}
_QUEUE = {
    "jobs": "use get_jobs(), which returns 100 unless length= is given; fusion.rq's Queue has jobs",
    "job_ids": "use get_job_ids(), which returns 100 unless length= is given; fusion.rq's Queue has job_ids",
    "failed_job_registry": "use FailedQueue; fusion.rq's Queue has failed_job_registry",
    "scheduled_job_registry": "use ScheduledJobRegistry; fusion.rq's Queue has scheduled_job_registry",
    "started_job_registry": _REGISTRY,
    "finished_job_registry": _REGISTRY,
    "deferred_job_registry": _REGISTRY,
    "canceled_job_registry": _REGISTRY,
    "enqueue_job": "use enqueue(); fusion.rq's Queue has enqueue_job",
    "create_job": "use prepare_data() and enqueue_many(); fusion.rq's Queue has create_job",
    "schedule_job": "use enqueue_at(); fusion.rq's Queue has schedule_job",
    "get_job_position": "use Job.get_position(); fusion.rq's Queue has get_job_position",
    "remove": "use Job.cancel(); fusion.rq's Queue has remove",
    "delete": "use empty(); fusion.rq's Queue has delete",
    "is_async": "a job runs in a worker only; fusion.rq's Queue takes is_async=False",
    "key": "keys are no part of the API (docs/keys.md); fusion.rq's Queue has key",
}
_JOB = {
    "is_deferred": "use get_status() == 'deferred'; fusion.rq's Job has is_deferred",
    "get_meta": "use refresh() and meta; fusion.rq's Job has get_meta",
    "get_id": "use id; fusion.rq's Job has get_id",
    "save": "use save_meta(); fusion.rq's Job has save",
    "create": "use Queue.prepare_data() and enqueue_many(); fusion.rq's Job has create",
    "set_status": "a state changes with its job's place only: use requeue(), cancel() or stop()",
    "dependency": "use dependencies; fusion.rq's Job has dependency",
    "fetch_dependencies": "use dependencies; fusion.rq's Job has fetch_dependencies",
    "to_dict": "use `fusion job show --json`; fusion.rq's Job has to_dict",
    "perform": "call the function; fusion.rq's Job has perform",
    "func": "use func_name: a reader imports no function; fusion.rq's Job has func",
    "retries_left": "use retry and retry_count; fusion.rq's Job has retries_left",
    "last_heartbeat": "workers renew leases, see `fusion job show`; fusion.rq's Job has last_heartbeat",
    "failure_ttl": "see `fusion job show --json`; fusion.rq's Job has failure_ttl",
    "ttl": "see `fusion job show --json`; fusion.rq's Job has ttl",
}
_CURRENT = {
    "save": "use save_meta(); the job of fusion.rq's get_current_job() has save",
    "refresh": "fetch it by Job.fetch(job.id); the job of fusion.rq's get_current_job() has refresh",
    "connection": "use fusion.get_current_connection(); the job of fusion.rq's get_current_job() has connection",
    "get_status": "a job that runs is started; the job of fusion.rq's get_current_job() has get_status",
    "get_meta": "use meta; the job of fusion.rq's get_current_job() has get_meta",
}
_KINDS = {"queue": _QUEUE, "job": _JOB, "current": _CURRENT}


def missing_in_module(name: str, frame: Any) -> Exception:
    """Return the error for a name that the module `fusion` does not have. `frame`: where it was read; `from fusion import NAME` replaces an
    AttributeError by a text of its own."""
    text = f"module 'fusion' has no attribute {name!r}"
    if (instead := _MODULE.get(name)) is None:
        return AttributeError(text, name=name, obj=sys.modules["fusion"])
    if is_import(frame):
        return ImportError(f"cannot import name {name!r} from 'fusion': {instead}. {PAGE} has RQ's names", name="fusion")
    return AttributeError(f"{text}: {instead}. {PAGE} has RQ's names", name=name, obj=sys.modules["fusion"])


def is_import(frame: Any) -> bool:
    """Return True if this frame reads a name for `from MODULE import NAME`, where Python replaces an AttributeError by a text of its own."""
    if frame.f_globals.get("__name__") == "importlib._bootstrap":
        return True
    from opcode import opmap

    return bool(frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"])


def missing_in(kind: str, found: Any, owner: type, name: str) -> AttributeError:
    """Return the error for an attribute that an object does not have. `found`: None if it was read from the class `owner`."""
    text = f"type object {owner.__name__!r}" if found is None else f"{owner.__name__!r} object"
    text = f"{text} has no attribute {name!r}"
    if not any(base.__module__.startswith("fusion.rq") for base in owner.__mro__):
        text = f"{text}: {_KINDS[kind][name]}. {PAGE} has RQ's names"
    return AttributeError(text, name=name, obj=owner if found is None else found)
