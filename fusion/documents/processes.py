"""Workers and schedulers as JSON shows them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from fusion.documents import times

if TYPE_CHECKING:
    from fusion.store.read.cron_inspector import SchedulerInfo
    from fusion.store.read.worker_inspector import WorkerInfo


#: A state.
UNLOADED = "can't load tasks"


def state_of(worker: WorkerInfo) -> str:
    """The state that people and programs are shown: what keeps a worker from jobs comes before idle and busy."""
    if not worker.alive:
        return "dead"
    if worker.unloaded:
        return UNLOADED
    if worker.quiet:
        return "quiet"
    return "throttled" if worker.throttled and worker.state == "idle" else worker.state


def worker(one: WorkerInfo, at: datetime) -> dict[str, Any]:
    """A worker."""
    return {
        "name": one.name,
        "state": state_of(one),
        "alive": one.alive,
        "quiet": one.quiet,
        "throttled": one.throttled or None,
        "unloaded": one.unloaded or None,
        "queues": list(one.queues),
        "current_job": one.current_job or None,
        "jobs": list(one.jobs),
        "hostname": one.hostname,
        "pid": one.pid,
        "birth": times.iso(one.birth),
        "last_heartbeat": times.iso(one.last_heartbeat),
        "heartbeat_age": times.age(at, one.last_heartbeat),
        "successful_jobs": one.successful_jobs,
        "failed_jobs": one.failed_jobs,
        "working_seconds": one.working_seconds,
    }


def scheduler(one: SchedulerInfo, at: datetime) -> dict[str, Any]:
    """A scheduler."""
    return {
        "name": one.name,
        "alive": one.alive,
        "hostname": one.hostname,
        "pid": one.pid,
        "app": one.app,
        "version": one.version,
        "birth": times.iso(one.birth),
        "last_heartbeat": times.iso(one.last_heartbeat),
        "heartbeat_age": times.age(at, one.last_heartbeat),
    }
