"""rq-scheduler's `Scheduler` over Fusion's schedule and cron entries: `from fusion.rq_scheduler import Scheduler`."""

from __future__ import annotations

from fusion.rq_scheduler.scheduler import Scheduler as Scheduler

__all__ = ["Scheduler"]
