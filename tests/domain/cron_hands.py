"""Entries whose ticks don't come while a test runs, and a scheduler's hand that looks at one and decides what is due."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest
import redis

from fusion.cron.entry import Entry, revision
from fusion.cron.plan import Plan
from fusion.cron.scheduler import Scheduler
from fusion.kernel.nonces import new_nonce
from fusion.settings import Settings
from fusion.store.access import cron_broker_of, cron_inspector_of
from tests.kit.hands import now_ms

TASK = "tasks.sms.sendSMS"
HOUR = timedelta(hours=1)
Hourly = Callable[..., str]


@pytest.fixture
def scheduler(conn: redis.Redis) -> Scheduler:
    return Scheduler(conn)


@pytest.fixture
def hourly(scheduler: Scheduler, conn: redis.Redis) -> Hourly:
    """`hourly("e", queue="sms")`: an entry whose last tick was ten seconds ago, and the next of which is far away."""
    start = datetime.fromtimestamp(now_s(conn) - 10, timezone.utc) - 30 * HOUR
    return lambda id="e", **options: scheduler.every(HOUR, TASK, id=id, start=start, **options)


def now_s(conn: redis.Redis) -> int:
    return now_ms(conn) // 1000


def due(conn: redis.Redis) -> list[str]:
    """The entries that a scheduler would look at now."""
    return [stored.id for stored in cron_broker_of(conn).cron_due().entries]


def look(conn: redis.Redis, entry_id: str, *, ticks: int = 0) -> tuple[str, int, int]:
    """What one look comes to: the answer, jobs enqueued, ticks skipped. With `ticks` as if the last one before this many had been decided."""
    if ticks:
        info = cron_inspector_of(conn).entry(entry_id)
        assert info is not None
        plan = Entry.of(info.id, info.plan, info.spec).plan
        (first, *_), count = plan.between(0, now_s(conn), ticks)
        assert count >= ticks
        conn.zadd("rq:cron:marks", {entry_id: first - 1})
        conn.zadd("rq:cron:due", {entry_id: first})
    broker = cron_broker_of(conn)
    found = broker.cron_due()
    (stored,) = (one for one in found.entries if one.id == entry_id)
    entry = Entry.of(stored.id, stored.plan, stored.spec)
    tick = entry.decide(int(float(stored.mark)) if stored.mark else None, found.now)
    return broker.cron_tick(stored, tick, entry.job, entry.queue, new_nonce(), overlap=entry.overlap)


def declare(conn: redis.Redis, entry_id: str, *, error: str = "") -> str:
    """As the scheduler of app `shop`, version 1.4."""
    start = datetime.fromtimestamp(now_s(conn) - 10, timezone.utc)
    entry = Entry.make(TASK, Plan.interval(HOUR, start), Settings(), id=entry_id)
    plan, spec = entry.plan.to_json(), entry.spec()
    said = ("", "", "") if error else (plan, spec, revision(plan, spec))
    return cron_broker_of(conn).cron_put(entry_id, *said, app="shop", version="1.4", error=error)
