"""Backends for tests, like Django's own of these names; they accept tasks and arguments as FusionBackend does. Neither needs Redis."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

from django.utils import timezone

from fusion.contrib.django import protocol, running
from fusion.contrib.django.tasks import Task, encoded
from fusion.kernel.serializers import JSONSerializer

_Dummy: Any = import_module(f"{protocol.HOME}.backends.dummy").DummyBackend
_Immediate: Any = import_module(f"{protocol.HOME}.backends.immediate").ImmediateBackend


class DummyBackend(_Dummy):
    """Stores enqueued calls in `results`, and runs nothing."""

    task_class = Task

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Store the call."""
        return super().enqueue(task, *_plain(args, kwargs))


class ImmediateBackend(_Immediate):
    """Runs enqueued calls at once, in this thread."""

    task_class = Task

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Run the call, with its arguments encoded and decoded as for a worker."""
        return super().enqueue(task, *_plain(args, kwargs))

    def _execute_task(self, task_result: Any) -> None:
        signals, status, task = protocol.signals(), protocol.TaskResultStatus, task_result.task
        _set(task_result, enqueued_at=timezone.now())
        signals.task_enqueued.send(type(self), task_result=task_result)
        started = timezone.now()
        _set(task_result, status=status.RUNNING, started_at=started, last_attempted_at=started)
        task_result.worker_ids.append(self.worker_id)
        signals.task_started.send(type(self), task_result=task_result)
        try:
            context = (protocol.TaskContext(task_result=task_result),) if task.takes_context else ()
            args, kwargs = _values([task_result.args, task_result.kwargs])
            value = running.storable(task.call(*context, *args, **kwargs))
            _set(task_result, _return_value=_values(encoded(value)), status=status.SUCCESSFUL, finished_at=timezone.now())
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            task_result.errors.append(running.error_of(error))
            _set(task_result, status=status.FAILED, finished_at=timezone.now())
            signals.task_finished.send(type(self), task_result=task_result)
        else:
            signals.task_finished.send(type(self), task_result=task_result)


def _plain(args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    return encoded(list(args)), {name: encoded(value) for name, value in kwargs.items()}


def _values(plain: Any) -> Any:
    """Return the values that a worker would decode from this plain JSON."""
    return JSONSerializer().loads(json.dumps(plain).encode())


def _set(result: Any, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(result, name, value)
