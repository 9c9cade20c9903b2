"""The pages, each noun in a module of its own. All of them stand in `ALL`, in the order of the navigation."""

from __future__ import annotations

from fusion.dashboard.page import Page, PageAction
from fusion.dashboard.pages import (
    audit,
    batches,
    cron,
    failures,
    find,
    job,
    jobs,
    limits,
    operations,
    overview,
    queues,
    redis_server,
    relay,
    scheduled,
    tasks,
    trash,
    workers,
)

ALL: tuple[Page | PageAction, ...] = (
    *overview.PAGES,
    *queues.PAGES,
    *tasks.PAGES,
    *jobs.PAGES,
    *job.PAGES,
    *failures.PAGES,
    *batches.PAGES,
    *scheduled.PAGES,
    *cron.PAGES,
    *limits.PAGES,
    *operations.PAGES,
    *workers.PAGES,
    *relay.PAGES,
    *redis_server.PAGES,
    *audit.PAGES,
    *trash.PAGES,
    *find.PAGES,
)
