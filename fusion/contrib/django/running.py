"""A Django task in the job's process: the function to call, its context, and the signals of its runs."""

from __future__ import annotations

import sys
from collections.abc import Generator
from inspect import iscoroutinefunction
from traceback import format_exception
from typing import Any
from weakref import WeakKeyDictionary

from django.utils import timezone

from fusion.context import CurrentJob, get_current_job
from fusion.contrib.django import protocol
from fusion.contrib.django.results import Record, result_of
from fusion.exceptions import TaskNotAllowed
from fusion.kernel import defaults
from fusion.kernel.importing import stands_for
from fusion.kernel.json_types import encode
from fusion.middleware import WorkerMiddleware, register

#: The TaskResults of the jobs that run here.
_results: WeakKeyDictionary[CurrentJob, Any] = WeakKeyDictionary()


def stand_in() -> None:
    """Make a Task callable by its path like a function, and send signals about its runs."""
    stands_for(protocol.Task, function_of)
    register(_told)


def function_of(task: Any) -> Any:
    """Return the function that a worker calls for the task: a coroutine function if the task's is one."""

    async def run_later(*args: Any, **kwargs: Any) -> Any:
        return storable(await task.func(*_context(task), *args, **kwargs))

    def run_now(*args: Any, **kwargs: Any) -> Any:
        return storable(task.func(*_context(task), *args, **kwargs))

    run: Any = run_later if iscoroutinefunction(task.func) else run_now
    if ties := task.func.__dict__.get("__fusion_ties__"):
        run.__dict__["__fusion_ties__"] = ties
    run.__module__, run.__qualname__ = task.func.__module__, task.func.__qualname__
    return run


def storable(value: Any) -> Any:
    """Return the value. TypeError if it can't be stored: under the protocol the task then fails with that error."""
    try:
        encode(value, defaults.MAX_DEPTH)
    except TypeError as error:
        raise TypeError(f"Unsupported type: what the task returned can't be stored: {error}") from None
    return value


def error_of(error: BaseException) -> Any:
    """Return the TaskError for an exception that a task raised."""
    kind = type(error)
    return protocol.TaskError(
        exception_class_path=f"{kind.__module__}.{kind.__qualname__}", traceback="".join(format_exception(error))
    )


class TaskSignals(WorkerMiddleware):
    """Sends `task_started` before each run of a task, and `task_finished` when it has ended for good, unless its process was killed. The
    sender is the class of its backend."""

    def around_job(self, job: CurrentJob) -> Generator[None, Any, None] | None:
        """Send the signals around the task. TaskNotAllowed if it was enqueued as a task, and is none here."""
        record = _record_of(job)
        task = _task_at(job.func_name)
        if task is not None:
            return self._around(job, task)
        if record.mark is not None:
            raise TaskNotAllowed(
                f"{job.func_name} was enqueued as a task of Django's, and is none here: put @task above it, or delete the job",
                code="FUS-306",
            )
        return None

    @staticmethod
    def _around(job: CurrentJob, task: Any) -> Generator[None, Any, None]:
        result = _results[job] = running_result(job, task)
        protocol.signals().task_started.send(_sender(result), task_result=result)
        value = yield
        _finished(job, protocol.TaskResultStatus.SUCCESSFUL, _return_value=value)

    def on_failure(self, job: CurrentJob, error: BaseException) -> None:
        """Send `task_finished` with FAILED and the error."""
        if (result := _results.get(job)) is not None:
            result.errors.append(error_of(error))
        before = error.__traceback__
        try:
            raise error  # receivers log the exception being handled
        except BaseException:
            _finished(job, protocol.TaskResultStatus.FAILED)
        finally:
            error.__traceback__ = before

    def on_stopped(self, job: CurrentJob) -> None:
        """Send `task_finished` with FAILED and no error."""
        _finished(job, protocol.TaskResultStatus.FAILED)


_told = TaskSignals()


def _finished(job: CurrentJob, status: Any, **fields: Any) -> None:
    if (result := _results.pop(job, None)) is not None:
        for name, value in {"status": status, "finished_at": timezone.now(), **fields}.items():
            object.__setattr__(result, name, value)
        protocol.signals().task_finished.send(_sender(result), task_result=result)


def _sender(result: Any) -> Any:
    return type(protocol.task_backends[result.backend])


def running_result(job: CurrentJob, task: Any) -> Any:
    """Return the TaskResult of the running job: RUNNING, with its attempt."""
    record = _record_of(job)
    alias = (record.mark or {}).get("backend")
    backend = protocol.task_backends[alias if alias in protocol.task_backends.settings else task.backend]
    return result_of(record, backend, of_any=True)


def _record_of(job: CurrentJob) -> Record:
    fields: dict[str, Any] = {name.decode(): value for name, value in job._fields.items()}
    return Record(job.id, fields | {"status": "started"})


def _task_at(path: str) -> Any:
    module, _, name = path.rpartition(".")
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, protocol.Task) else None


def _context(task: Any) -> tuple[Any, ...]:
    if not task.takes_context:
        return ()
    job = get_current_job()
    if job is None:
        raise RuntimeError(f"{task.module_path} takes a context, which only a running job has")
    return (protocol.TaskContext(task_result=_results.get(job) or running_result(job, task)),)
