"""A concurrency key, as every interface shows it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from fusion.kernel.timeutil import from_iso
from fusion.views.base import View, part, public, view
from fusion.views.queue import PauseView, TotalsView, totals_of

if TYPE_CHECKING:
    from typing import Self

    from fusion.store.read.limit_inspector import KeyStats, LimitInfo


@part
class HolderView(View):
    """A job that has a slot of a key."""

    job_id: str = public("The job.")
    queue: str = public("Its queue.")
    status: str = public("Its state.")
    started: bool = public("Whether it runs; if not, it waits in its queue and keeps its slot.")
    since: datetime | None = public("Since when it has the slot.")


@view
class KeyView(View):
    """A concurrency key at one moment."""

    key: str = public("The key.", column="KEY")
    queue_length: int = public("Jobs that wait, for their turn or for a slot.")
    active_count: int = public("Jobs that run.", column="ACTIVE")
    held_count: int = public("Slots that jobs hold, whether they run or wait in their queues.", column="HELD")
    blocked_count: int = public("Jobs that wait for a slot.", column="BLOCKED")
    lock_waiting_count: int = public("Runs of jobs that wait for the lock of this name.")
    oldest_enqueued_at: datetime | None = public("When the job was enqueued that has waited longest.")
    max_concurrent: int | None = public("How many of its jobs may run at once; null for any number.", column="LIMIT")
    pinned: bool = public("Whether a person set it; if not, the last enqueue did.")
    rate: str | None = public("How many of its jobs may start in a time, like `100/60s`.", column="RATE")
    rate_pinned: bool = public("Whether a person set the rate.")
    paused: bool = public("Whether none of its jobs is started.")
    pause: PauseView | None = public("Details of the pause.")
    held_back_until: datetime | None = public("Until when a task holds it back.")
    stuck: bool = public("Whether jobs wait, and none has started for ten minutes.", column="")
    last_used: datetime = public("When a job last had it.", column="USED")
    holders: list[HolderView] = public("Some of the jobs that have a slot.")

    @classmethod
    def of(cls, info: LimitInfo, **more: Any) -> Self:
        """Make the view of a key. `more`: the fields of a larger view."""
        limit = info.limit
        return cls(
            key=limit.key,
            queue_length=info.queue_length,
            active_count=info.active,
            held_count=info.held,
            blocked_count=info.blocked,
            lock_waiting_count=info.lock_waiting,
            oldest_enqueued_at=info.oldest,
            max_concurrent=limit.max_concurrent,
            pinned=limit.pinned,
            rate=str(limit.rate) if limit.rate else None,
            rate_pinned=limit.rate_pinned,
            paused=info.paused,
            pause=_pause_of(info) if info.paused else None,
            held_back_until=info.held_back,
            stuck=info.stuck,
            last_used=info.last_used,
            holders=[
                HolderView(job_id=one.job_id, queue=one.queue, status=one.status, started=one.started, since=one.since)
                for one in info.holders
            ],
            **more,
        )


def _pause_of(info: LimitInfo) -> PauseView:
    limit, by = info.limit, info.limit.paused_by
    since, until = from_iso(limit.paused_since), info.paused_until
    return PauseView(since=since, until=until, by=by or None, reason=limit.paused_why or None)


@view
class KeysView(View):
    """A page of concurrency keys."""

    keys: list[KeyView] = public("The most recently used first.")
    offset: int = public("How many were left out before these.")


@view
class KeyStatsView(KeyView, TotalsView):
    """A concurrency key with its lifetime counters."""

    last_updated: datetime = public("When this was read, by Redis's clock.")

    @classmethod
    def of_stats(cls, stats: KeyStats) -> Self:
        """Make the view of a key and its counters."""
        return cls.of(stats.info, **totals_of(stats.counters), last_updated=stats.last_updated)
