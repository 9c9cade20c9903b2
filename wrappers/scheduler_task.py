"""The service's recurring jobs: one table, which `run_worker.py scheduler -c instance` takes up.

A program may add an entry of its own at run time, which then stays until it is removed:

from fusion.cron.scheduler import Scheduler
from wrappers.scheduler_task import add
add(Scheduler(), {"days": 30}, "30 2 * * *", "tasks.reports.send", id="nightly_report", timezone="Europe/Berlin")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusion.cron.scheduler import Planner

#: Where recurring tasks go unless their options say otherwise.
QUEUE = "scheduler"


@dataclass(frozen=True, slots=True)
class Row:
    """`data`: the task's one argument; None or `{}` for a task without. `options` are those of `Scheduler.cron`."""

    id: str
    cron: str
    function: str
    data: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)


TABLE: tuple[Row, ...] = (
    Row(
        "redis_maintenance_on_failed_queue",
        "*/5 * * * *",
        "tasks.maintenance.run_maintenance_on_failed_queue",
        # It looks at all that has failed, whenever that was: a run that was missed need not be made up, and one at a time is enough.
        options={"misfire": "latest", "overlap": "skip"},
    ),
)


def add(scheduler: Planner, data: Any, cron: str, func: str, *, id: str, **options: Any) -> str:
    """Run `func`, by its dotted name, with `data` at every tick of the cron expression (in UTC unless `timezone=` is given).

    `data` is the task's one argument; None or `{}` for a task without. `options` are those of `Scheduler.cron`; the queue is `scheduler` unless
    given. The same id again changes the entry. Returns the id; raises what `Scheduler.cron` does, with nothing stored.
    """
    return scheduler.cron(cron, func, id=id, args=() if data is None or data == {} else (data,), **{"queue": QUEUE, **options})


def register(scheduler: Planner) -> None:
    """The table's rows; the scheduler process calls it for the modules in the setting `schedule`."""
    for row in TABLE:
        add(scheduler, row.data, row.cron, row.function, id=row.id, **row.options)
