"""`Queue(is_async=False)`: runs a job where it is enqueued, and stores how it ended by plain commands. No script runs on the way."""

from __future__ import annotations

import inspect
import json
import traceback
from typing import TYPE_CHECKING, Any

from fusion.exceptions import SerializationError
from fusion.kernel.importing import resolve
from fusion.kernel.serializers import JSONSerializer
from fusion.kernel.timeutil import now, to_iso
from fusion.rq.callbacks import as_current, called
from fusion.rq.defaults import DEFAULT_FAILURE_TTL, DEFAULT_RESULT_TTL, UNSERIALIZABLE_RETURN_VALUE_PAYLOAD
from fusion.settings import get_settings
from fusion.store.write.plain_records import PlainRecords

if TYPE_CHECKING:
    from fusion.rq.job import Job


def run_at_once(job: Job, queue: str) -> Job:
    """Run a job here, with no limit of time. An error of its task makes it fail; one of a callback is raised. DuplicateJob: an accepted
    job that has not ended has its id."""
    records = PlainRecords(job.connection, get_settings().prefix)
    job._settle()
    fields, at = job._fields, to_iso(now())
    fields |= {"origin": queue, "status": "started", "enqueued_at": at, "started_at": at, "worker_name": "sync"}
    job._new = None
    records.write(job.id, fields, DEFAULT_FAILURE_TTL)  # so that it goes one day should this process be killed
    with as_current(job):
        try:
            value = called(job.func, *job.args, **job.kwargs)
        except Exception as error:
            text = traceback.format_exc()
            line = text.rstrip().rpartition("\n")[2]
            run = {"start": at, "end": to_iso(now()), "worker": "sync", "outcome": "failed", "error": line}
            _end(
                job,
                records,
                "failed",
                job._seconds("failure_ttl"),
                DEFAULT_FAILURE_TTL,
                exc_info=text,
                reason=line,
                history=json.dumps(run),
            )
            _call_back(job, "on_failure", type(error), error, error.__traceback__)
        else:
            _end(
                job,
                records,
                "finished",
                job._seconds("result_ttl"),
                DEFAULT_RESULT_TTL,
                result=None if value is None else _encoded(value),
            )
            _call_back(job, "on_success", value)
    return job


def _end(job: Job, records: PlainRecords, status: str, kept: int | None, usual: int, **more: Any) -> None:
    job._settle()
    job._fields |= {
        "status": status,
        "ended_at": to_iso(now()),
        **{name: value for name, value in more.items() if value is not None},
    }
    records.write(job.id, job._fields, usual if kept is None else kept)


def _encoded(value: Any) -> bytes:
    try:
        return JSONSerializer().dumps(value)
    except SerializationError:
        return JSONSerializer().dumps(UNSERIALIZABLE_RETURN_VALUE_PAYLOAD)


def _call_back(job: Job, field: str, *args: Any) -> None:
    raw = job._text(field)
    if raw:
        callback = job._given_callbacks.get(field) or resolve(json.loads(raw)["func"], get_settings().tasks)
        if inspect.iscoroutinefunction(callback):
            raise TypeError(f"{field}: coroutine functions are not supported as callbacks")
        callback(job, job.connection, *args)
