"""The backend of `django.tasks`: `TASKS = {"default": {"BACKEND": "fusion.contrib.django.tasks.FusionBackend"}}` (docs/django-tasks.md)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from fusion.contrib.django import protocol, running
from fusion.contrib.django.declaring import limits_concurrency, recurring
from fusion.contrib.django.definition import OPTIONS, Task
from fusion.contrib.django.protocol import task
from fusion.contrib.django.results import MARK, Record, from_priority, mark_of, result_of, to_priority
from fusion.kernel import defaults
from fusion.kernel.json_types import encode

if TYPE_CHECKING:
    from fusion.job import Job

__all__ = ["FusionBackend", "Task", "from_priority", "limits_concurrency", "recurring", "task", "to_priority"]


class FusionBackend(protocol.BaseTaskBackend):
    """Enqueues tasks with Fusion. `OPTIONS`: `ENQUEUE_ON_COMMIT` overrides the setting `ON_COMMIT` of `FUSION`, unless it is None."""

    task_class = Task
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.on_commit: bool | None = self.options.get("ENQUEUE_ON_COMMIT")

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Enqueue a call, and return its TaskResult, READY. In an open transaction the call is sent at commit; until then the result has no
        `enqueued_at`. Raises InvalidTask, and what `Queue.enqueue` raises: SerializationError, which is a TypeError, QueueFull, DuplicateJob,
        StoreUnavailable."""
        from fusion.queue import Queue

        self.validate_task(task)
        options = {name: value for name in OPTIONS if (value := getattr(task, name, None)) is not None}
        options["meta"] = {**options.get("meta", {}), MARK: mark_of(task, self.alias)}
        if task.run_after is not None:
            options["enqueue_at"] = _aware(task.run_after)
        if self.on_commit is not None:
            options.setdefault("on_commit", self.on_commit)
        queue = Queue(task.queue_name, serializer="json")
        job = queue.enqueue_call(task.func, args, kwargs, priority=to_priority(task.priority), **options)
        result = self._ready(task, args, kwargs, job.id)
        if (held := job._held) is not None:
            held.then(lambda: self._enqueued(result, held.jobs[0]))
        else:
            self._enqueued(result, job)
        return result

    def get_result(self, result_id: str) -> Any:
        """Return the result with this id as it is now. TaskResultDoesNotExist: no job of this backend has it, its `result_ttl` is over, or
        its transaction is not committed yet."""
        from fusion.exceptions import InvalidName, NoSuchJobError
        from fusion.job import Job

        try:
            job = Job.fetch(result_id)
        except (NoSuchJobError, InvalidName):
            raise protocol.TaskResultDoesNotExist(result_id) from None
        return result_of(Record(job.id, job._fields), self)

    def _ready(self, task: Any, args: Any, kwargs: Any, job_id: str) -> Any:
        return protocol.TaskResult(
            task=task,
            id=job_id,
            status=protocol.TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=encoded(list(args)),
            kwargs={name: encoded(value) for name, value in kwargs.items()},
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )

    def _enqueued(self, result: Any, job: Job) -> None:
        object.__setattr__(result, "enqueued_at", job.created_at)
        protocol.signals().task_enqueued.send(type(self), task_result=result)


def encoded(value: Any) -> Any:
    """Return the value as the plain JSON that is stored. SerializationError, which is a TypeError, or PayloadTooLarge."""
    return encode(value, defaults.MAX_DEPTH)


def _aware(moment: datetime) -> datetime:
    """Return an aware time. Without USE_TZ times are naive, in the zone of TIME_ZONE."""
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment, timezone.get_default_timezone())


running.stand_in()
