"""Tasks on an event loop that many jobs share: each job can reach only its own."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any, Protocol


class Owner(Protocol):
    """The run that a task belongs to. `reached`: another run has cancelled tasks of it."""

    reached: bool


#: The run to which the currently running code belongs.
owner_of_tasks: ContextVar[Owner | None] = ContextVar("fusion_owner_of_tasks", default=None)
_all_tasks = asyncio.all_tasks


class OwnTask(asyncio.Task[Any]):
    """A task of Fusion itself: no job can cancel it."""

    def cancel(self, msg: Any | None = None) -> bool:
        """Do nothing."""
        return False


class JobTask(asyncio.Task[Any]):
    """A task of a job. `is_main`: it is the job itself, which no other job can cancel."""

    is_main = False

    def __init__(self, coroutine: Any, **options: Any) -> None:
        super().__init__(coroutine, **options)
        self.owner = owner_of_tasks.get() if (context := options.get("context")) is None else context.get(owner_of_tasks)

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the task, unless it is the main task of another job."""
        caller = owner_of_tasks.get()
        if self.owner is not None and caller is not None and caller is not self.owner:
            if self.is_main:
                return False
            self.owner.reached = True
        return super().cancel(msg)


def show_own_tasks() -> None:
    """Make `asyncio.all_tasks` return only a job's own tasks to it."""
    asyncio.all_tasks = asyncio.tasks.all_tasks = _own_tasks


def _own_tasks(loop: asyncio.AbstractEventLoop | None = None) -> set[asyncio.Task[Any]]:
    found, owner = _all_tasks(loop), owner_of_tasks.get()
    return found if owner is None else {task for task in found if getattr(task, "owner", None) is owner}
