"""The figures of a manager."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True)
class Stats:
    """A manager at one moment."""

    #: Jobs that wait for a worker.
    queue_size: int
    #: Jobs that a worker has, until the plan has their outcome.
    active_jobs: int
    active_job_ids: tuple[Hashable, ...]
    queued_job_ids: tuple[Hashable, ...]
    #: Active jobs whose time is over and whose thread has not ended.
    overdue_job_ids: tuple[Hashable, ...]
    #: Number of workers that should exist.
    total_workers: int
    #: Number of live workers, without those whose job is overdue.
    alive_workers: int
    master_thread_alive: bool
    #: Memory that is scarce, like `RAM 92.1 %`: no job is fetched and none is pulled. Empty if there is enough.
    throttled: str
