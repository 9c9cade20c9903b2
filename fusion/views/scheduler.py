"""A scheduler, as every interface shows it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from fusion.views.base import View, age, part, public

if TYPE_CHECKING:
    from typing import Self

    from fusion.store.read.cron_inspector import SchedulerInfo


@part
class SchedulerView(View):
    """A registered scheduler, alive or dead."""

    name: str = public("Its name.", column="SCHEDULER")
    alive: bool = public("Whether its heartbeat is younger than its lease.", column="STATE")
    hostname: str = public("The host that it runs on.")
    pid: int = public("Its process id.", column="PROCESS")
    app: str = public("The app whose cron entries it declares.", column="APP")
    version: str = public("The version of that app.")
    birth: datetime | None = public("When it started.")
    last_heartbeat: datetime | None = public("The time of its last heartbeat.")
    heartbeat_age: float | None = public("How long ago that was.", unit="seconds", column="HEARTBEAT")

    @classmethod
    def of(cls, one: SchedulerInfo, at: datetime) -> Self:
        """Make the view of a scheduler as it is at this time."""
        return cls(
            name=one.name,
            alive=one.alive,
            hostname=one.hostname,
            pid=one.pid,
            app=one.app,
            version=one.version,
            birth=one.birth,
            last_heartbeat=one.last_heartbeat,
            heartbeat_age=age(at, one.last_heartbeat),
        )
