"""A worker, as every interface shows it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from fusion.views.base import View, age, public, view

if TYPE_CHECKING:
    from typing import Self

    from fusion.store.read.worker_inspector import WorkerInfo

#: The state of a worker that can't load its tasks.
UNLOADED = "can't load tasks"


def state_of(worker: WorkerInfo) -> str:
    """Return the state to show. A state that keeps the worker from taking jobs takes precedence over idle and busy."""
    if not worker.alive:
        return "dead"
    if worker.unloaded:
        return UNLOADED
    if worker.quiet:
        return "quiet"
    return "throttled" if worker.throttled and worker.state == "idle" else worker.state


@view
class WorkerView(View):
    """A registered worker, alive or dead."""

    name: str = public("Its name.", column="WORKER")
    state: str = public("`idle`, `busy`, `suspended`, `quiet`, `throttled`, `can't load tasks` or `dead`.", column="STATE")
    alive: bool = public("Whether its heartbeat is younger than its lease.")
    quiet: bool = public("Whether it was ordered to take no more jobs.")
    throttled: str | None = public("The scarce memory because of which it takes no jobs.")
    unloaded: str | None = public("Why it can't load its tasks.")
    queues: list[str] = public("The queues and wildcards that it serves.", column="QUEUES")
    current_job: str | None = public("The job that it runs; one of them, if it runs several.", column="JOB")
    jobs: list[str] = public("All jobs that it runs.", column="JOBS")
    hostname: str = public("The host that it runs on.")
    pid: int = public("Its process id.")
    birth: datetime | None = public("When it started.")
    last_heartbeat: datetime | None = public("The time of its last heartbeat.")
    heartbeat_age: float | None = public("How long ago that was.", unit="seconds", column="HEARTBEAT", short="BEAT")
    successful_jobs: int = public("Jobs that it finished.", column="FINISHED", short="DONE")
    failed_jobs: int = public("Jobs that failed in it.", column="FAILED")
    working_seconds: float = public("How long it has run jobs.", unit="seconds")
    version: str | None = public("Its version of Fusion.")
    memory: int | None = public("Memory of its process and its fork server, without that of jobs.", unit="bytes")

    @classmethod
    def of(cls, one: WorkerInfo, at: datetime) -> Self:
        """Make the view of a worker as it is at this time."""
        return cls(
            name=one.name,
            state=state_of(one),
            alive=one.alive,
            quiet=one.quiet,
            throttled=one.throttled or None,
            unloaded=one.unloaded or None,
            queues=list(one.queues),
            current_job=one.current_job or None,
            jobs=list(one.jobs),
            hostname=one.hostname,
            pid=one.pid,
            birth=one.birth,
            last_heartbeat=one.last_heartbeat,
            heartbeat_age=age(at, one.last_heartbeat),
            successful_jobs=one.successful_jobs,
            failed_jobs=one.failed_jobs,
            working_seconds=one.working_seconds,
            version=one.version or None,
            memory=one.memory,
        )


@view
class WorkersView(View):
    """A page of workers."""

    workers: list[WorkerView] = public("By name.")
    total: int = public("How many there are in all.")
    offset: int = public("How many were left out before these.")


@view
class WorkerToldView(View):
    """A command that was sent to a worker."""

    name: str = public("The worker.")
    command: str = public("`quiet`, `unquiet` or `shutdown`.")
