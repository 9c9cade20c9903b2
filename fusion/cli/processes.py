"""Workers and schedulers as JSON shows them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from fusion.cli import marks

if TYPE_CHECKING:
    from fusion.store.read.cron_inspector import SchedulerInfo
    from fusion.store.read.worker_inspector import WorkerInfo


def worker(one: WorkerInfo, at: datetime) -> dict[str, Any]:
    """A one."""
    return {
        "name": one.name,
        "state": one.state,
        "alive": one.alive,
        "quiet": one.quiet,
        "throttled": one.throttled or None,
        "queues": list(one.queues),
        "current_job": one.current_job or None,
        "jobs": list(one.jobs),
        "hostname": one.hostname,
        "pid": one.pid,
        "birth": marks.iso(one.birth),
        "last_heartbeat": marks.iso(one.last_heartbeat),
        "heartbeat_age": marks.age(at, one.last_heartbeat),
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
        "birth": marks.iso(one.birth),
        "last_heartbeat": marks.iso(one.last_heartbeat),
        "heartbeat_age": marks.age(at, one.last_heartbeat),
    }
