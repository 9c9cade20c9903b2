"""The pages, each noun in a module of its own. All of them stand in `ALL`, in the order of the navigation."""

from __future__ import annotations

from fusion.dashboard.page import Page, PageAction
from fusion.dashboard.pages import (
    audit,
    batches,
    cron,
    failures,
    job,
    jobs,
    limits,
    operations,
    overview,
    queues,
    redis_server,
    relay,
    scheduled,
    trash,
    workers,
)

ALL: tuple[Page | PageAction, ...] = (
    *overview.PAGES,
    *queues.PAGES,
    *jobs.PAGES,
    *job.PAGES,
    *failures.PAGES,
    *operations.PAGES,
    *scheduled.PAGES,
    *cron.PAGES,
    *workers.PAGES,
    *batches.PAGES,
    *limits.PAGES,
    *relay.PAGES,
    *redis_server.PAGES,
    *audit.PAGES,
    *trash.PAGES,
)
