"""Many jobs as the scripts would have left them, and all that a query finds, page after page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import redis

from fusion.kernel.scope import EVERYTHING, Scope
from fusion.store.query.grammar import Query
from fusion.store.read.search_inspector import FoundPage, SearchInspector

SETS = {
    "started": "wip:{}", "failed": "queue:failed", "blocked": "blocked:{}", "queued": "queue:{}", "scheduled": "scheduler:scheduled_jobs",
    "deferred": "deferred:{}", "canceled": "canceled:{}", "stopped": "stopped:{}", "finished": "finished:{}",
}  # fmt: skip


def store(conn: redis.Redis, state: str, scores: dict[str, float], queue: str = "sms", **fields: Any) -> None:
    """Jobs as the scripts would have left them, many at a time."""
    known = {"status": state, "origin": queue, "func": "tasks.sms.sendSMS", "created_at": "2026-01-31T09:00:00.000000Z"} | fields
    pipe = conn.pipeline(transaction=False)
    for job_id in scores:
        pipe.hset(f"rq:job:{job_id}", mapping=known)
    pipe.zadd("rq:" + SETS[state].format(queue), scores)
    pipe.sadd("rq:queues", f"rq:queue:{queue}")
    pipe.execute()


def find(search: SearchInspector, text: str = "", scope: Scope = EVERYTHING, limit: int = 50) -> list[str]:
    return [job.id for page in pages(search, text, scope, limit) for job in page.jobs]


def pages(search: SearchInspector, text: str = "", scope: Scope = EVERYTHING, limit: int = 50) -> Iterator[FoundPage]:
    after = ""
    while True:
        page = search.page(Query.parse(text), scope, limit, after)
        yield page
        if not page.after:
            return
        assert page.after != after
        after = page.after
