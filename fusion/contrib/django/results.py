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
from fusion.kernel.states import ENDED

#: The key of a job's `meta` that stores its backend, priority and time.
MARK = "django_task"
#: Ends of runs that count as attempts. A run that its worker gave back does not.
_ATTEMPTS = frozenset(("failed", "retry", "lost", "stopped", "canceled"))


def to_priority(number: int) -> int:
    """Convert Django's priority: -100..-1 is low, 0 moderate, and 1..100 high, in its order."""
    return 0 if number < 0 else int(number) + 1


def from_priority(priority: int) -> int:
    """Return Django's number for a job of another origin, as near as possible."""
    return -1 if priority <= 0 else min(priority - 1, 100)


def mark_of(task: Any, alias: str) -> dict[str, Any]:
    """Return what a job stores about the task that enqueued it."""
    found: dict[str, Any] = {"backend": alias}
    if task.priority:
        found["priority"] = int(task.priority)
    if task.run_after is not None:
        found["run_after"] = task.run_after.isoformat()
    return found


class Record(JobFields):
    """A job's fields, from any source."""

    def __init__(self, id: str, fields: dict[str, Any]) -> None:
        self.id, self._fields = id, fields

    @property
    def meta(self) -> dict[str, Any]:
        """The job's meta; empty if it has none, or an invalid one."""
        return _meta(self._fields)

    @property
    def mark(self) -> dict[str, Any] | None:
        """The data stored about its task; None if it was not enqueued by Django's protocol."""
        found = self.meta.get(MARK)
        return found if isinstance(found, dict) else None

    def call(self) -> tuple[str, list[Any], dict[str, Any]]:
        """Return its function's name and arguments as plain JSON: nothing is imported or fetched for it. DeserializationError."""
        if self._text("serializer", "json") != "json":
            raise DeserializationError(f"job {self.id} is pickled")
        raw = self._fields.get("data", b"")
        return part_call(plain(raw if isinstance(raw, bytes) else str(raw).encode()))

    def runs(self) -> list[Attempt]:
        """Return the known runs that count as attempts, the oldest first."""
        return [run for run in self.attempt_history if run.outcome in _ATTEMPTS]

    def returned(self) -> Any:
        """Return the result of its task; as plain JSON, if it can't be decoded here."""
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
    """Return the TaskResult of a job. TaskResultDoesNotExist if the job does not belong to this backend, unless `of_any`, or if its function
    is no task here."""
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
    # Only the last ten runs are kept, and the running one has no entry; but the number of attempts is known.
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
    """Return Django's status. An unknown status of a newer version becomes READY, since it may not have ended."""
    names = protocol.TaskResultStatus
    known = dict.fromkeys(ENDED, names.FAILED) | {"started": names.RUNNING, "finished": names.SUCCESSFUL}
    return known.get(status, names.READY)


def _errors(record: Record, runs: list[Attempt]) -> list[Any]:
    """Return an error for each failed attempt; for earlier ones only the last line of the traceback is kept."""
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
    """Return the task at a dotted path, as it was enqueued. LookupError if the object there is no task; ImportError. Only modules of
    installed apps are loaded: anyone who can write to Redis can name any module."""
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
    except protocol.InvalidTask:  # the backend's queues have changed since: keep the one that was enqueued to
        return found


def _number(value: Any) -> int:
    return value if type(value) is int and -100 <= value <= 100 else 0


def _moment(value: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
