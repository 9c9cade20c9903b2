"""Where Django's task protocol is: `django.tasks` from Django 6.0 on; with 5.2 the backport `django_tasks`. Their names are the same, except
for one."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import django

HOME = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"

try:
    _tasks: Any = import_module(HOME)
except ModuleNotFoundError as error:
    if error.name != HOME:
        raise
    raise ModuleNotFoundError(
        f"fusion.contrib.django.tasks needs {HOME} with Django {django.__version__}: pip install {HOME.replace('_', '-')}",
        name=HOME,
    ) from None

_base: Any = import_module(f"{HOME}.base")
_exceptions: Any = import_module(f"{HOME}.exceptions")

task: Any = _tasks.task
task_backends: Any = _tasks.task_backends
Task: Any = _base.Task
TaskContext: Any = _base.TaskContext
TaskError: Any = _base.TaskError
TaskResult: Any = _base.TaskResult
TaskResultStatus: Any = _base.TaskResultStatus
TaskResultDoesNotExist: Any = _exceptions.TaskResultDoesNotExist
InvalidTask: Any = getattr(_exceptions, "InvalidTask", None) or _exceptions.InvalidTaskError
BaseTaskBackend: Any = import_module(f"{HOME}.backends.base").BaseTaskBackend


def signals() -> Any:
    """Return the module of the protocol's signals, which can't be loaded before the apps are."""
    return import_module(f"{HOME}.signals")
