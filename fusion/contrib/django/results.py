"""A job as the TaskResult of Django's protocol."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import datetime
from importlib import import_module
from typing import Any

from fusion.contrib.django import protocol
from fusion.exceptions import DeserializationError
from fusion.jobs.attempts import Attempt
from fusion.jobs.fields import JobFields
from fusion.kernel.compression import plain
from fusion.kernel.serializers import JSONSerializer, part_call

#: The key of a job's `meta` that says of which backend it is, and with what priority and time.
MARK = "django_task"
#: Ends of runs that were attempts. One that its worker gave back is none.
_ATTEMPTS = frozenset(("failed", "retry", "lost", "stopped", "canceled"))


def to_priority(number: int) -> int:
    """Django's -100..-1 is low, 0 moderate, and 1..100 is high, in its order."""
    return 0 if number < 0 else int(number) + 1


def from_priority(priority: int) -> int:
    """Django's number of a job that did not come from there, as near as may be."""
    return -1 if priority <= 0 else min(priority - 1, 100)


def mark_of(task: Any, alias: str) -> dict[str, Any]:
    """What a job says of the task that it was enqueued by."""
    found: dict[str, Any] = {"backend": alias}
    if task.priority:
        found["priority"] = int(task.priority)
    if task.run_after is not None:
        found["run_after"] = task.run_after.isoformat()
    return found


class Record(JobFields):
    """A job's fields, wherever they were read."""

    def __init__(self, id: str, fields: dict[str, Any]) -> None:
        self.id, self._fields = id, fields

    @property
    def meta(self) -> dict[str, Any]:
        """Its meta; empty if it is none."""
        return _meta(self._fields)

    @property
    def mark(self) -> dict[str, Any] | None:
        """What it says of its task; None if it was not enqueued by Django's protocol."""
        found = self.meta.get(MARK)
        return found if isinstance(found, dict) else None

    def call(self) -> tuple[str, list[Any], dict[str, Any]]:
        """Its function's name and arguments as bare JSON: nothing is imported or fetched for it. DeserializationError."""
        if self._text("serializer", "json") != "json":
            raise DeserializationError(f"job {self.id} is pickled")
        raw = self._fields.get("data", b"")
        return part_call(plain(raw if isinstance(raw, bytes) else str(raw).encode()))

    def runs(self) -> list[Attempt]:
        """The runs that ended as attempts, as far as it is known, the oldest first."""
        return [run for run in self.attempt_history if run.outcome in _ATTEMPTS]

    def returned(self) -> Any:
        """What its task returned; the bare JSON of it, if that can't be made a value here."""
        raw = self._fields.get("result")
        if raw is None:
            return None
        raw = raw if isinstance(raw, bytes) else str(raw).encode()
        serializer = JSONSerializer()
        try:
            return serializer.loads(raw)
        except DeserializationError:
            return serializer.parse(plain(raw))


def _meta(fields: dict[str, Any]) -> dict[str, Any]:
    raw = fields.get("meta")
    if not raw:
        return {}
    try:
        found = JSONSerializer().loads(raw if isinstance(raw, bytes) else str(raw).encode())
    except DeserializationError:
        return {}
    return found if isinstance(found, dict) else {}


def result_of(record: Record, backend: Any, *, of_any: bool = False) -> Any:
    """The TaskResult of a job as it was read. TaskResultDoesNotExist if it is not one of this backend's, unless those `of_any` will do, or what it
    names is no task here."""
    mark = record.mark
    if not of_any and mark is not None and mark.get("backend") != backend.alias:
        raise protocol.TaskResultDoesNotExist(record.id)
    try:
        path, args, kwargs = record.call()
        task = task_at(path, mark or {"priority": from_priority(record.priority)}, record.original_queue, backend.alias)
    except (DeserializationError, ImportError, LookupError) as error:
        raise protocol.TaskResultDoesNotExist(f"{record.id}: {error}") from None
    status = _status(record.last_status)
    runs = record.runs()
    running = status == protocol.TaskResultStatus.RUNNING
    # The last ten runs are kept, and of the job that runs none is told: their number is.
    workers = [""] * max(record.attempts - len(runs), 0) + [run.worker for run in runs]
    if running or status == protocol.TaskResultStatus.SUCCESSFUL:
        workers.append(record.worker_name)
    result = protocol.TaskResult(
        task=task,
        id=record.id,
        status=status,
        enqueued_at=record.created_at,
        started_at=(runs[0].start if runs else None) or record.started_at,
        last_attempted_at=record.started_at or (runs[-1].start if runs else None),
        finished_at=record.ended_at if status in _ENDS else None,
        args=args,
        kwargs=kwargs,
        backend=backend.alias,
        errors=_errors(record, runs),
        worker_ids=workers,
    )
    if status == protocol.TaskResultStatus.SUCCESSFUL:
        object.__setattr__(result, "_return_value", record.returned())
    return result


_ENDS = (protocol.TaskResultStatus.SUCCESSFUL, protocol.TaskResultStatus.FAILED)


def _status(status: str) -> Any:
    """Of a status that only a newer version knows: READY, since it is not known to have ended."""
    names = protocol.TaskResultStatus
    return {
        "started": names.RUNNING,
        "finished": names.SUCCESSFUL,
        "failed": names.FAILED,
        "stopped": names.FAILED,
        "canceled": names.FAILED,
    }.get(status, names.READY)


def _errors(record: Record, runs: list[Attempt]) -> list[Any]:
    """One for each attempt that failed; of earlier ones the last line of the traceback is kept."""
    failed = [run for run in runs if run.outcome in ("failed", "retry", "lost")]
    found = [protocol.TaskError(exception_class_path=_class_of(run.error), traceback=run.error + "\n") for run in failed]
    if found and failed[-1].outcome != "lost" and record.exc_info:
        path = record.error_class or found[-1].exception_class_path
        found[-1] = protocol.TaskError(exception_class_path=path, traceback=record.exc_info.rstrip("\n") + "\n")
    return found


def _class_of(line: str) -> str:
    name = line.partition(":")[0].strip()
    if not name or not all(part.isidentifier() for part in name.split(".")):
        return "fusion.exceptions.JobLost"
    return name if "." in name else f"builtins.{name}"


def task_at(path: str, mark: dict[str, Any], queue: str, alias: str) -> Any:
    """The task at a dotted path, as it was enqueued. LookupError if what is there is none; ImportError. No module is loaded for it but one of an
    installed app: whoever can write to Redis can name any."""
    from django.apps import apps

    module_name, _, name = path.rpartition(".")
    module = sys.modules.get(module_name)
    if module is None:
        if not module_name or apps.get_containing_app_config(module_name) is None:
            raise LookupError(f"{path[:200]} is in no installed app")
        module = import_module(module_name)
    found: Any = getattr(module, name, None)
    if not isinstance(found, protocol.Task):
        raise LookupError(f"{path[:200]} is not a task here")
    wanted: dict[str, Any] = {"priority": _number(mark.get("priority", 0)), "queue_name": queue, "backend": alias}
    if (moment := _moment(mark.get("run_after"))) is not None:
        wanted["run_after"] = moment
    wanted = {name: value for name, value in wanted.items() if getattr(found, name) != value}
    try:
        return replace(found, **wanted) if wanted else found
    except protocol.InvalidTask:  # the backend has other queues by now: this is about what was enqueued
        return found


def _number(value: Any) -> int:
    return value if type(value) is int and -100 <= value <= 100 else 0


def _moment(value: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
