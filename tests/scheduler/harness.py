"""Entries whose ticks are due, and what a scheduler's ticks left in Redis."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

import redis

from fusion.cron.scheduler import Scheduler
from fusion.store.read.cron_inspector import CronInspector, EntryInfo, SchedulerInfo
from fusion.store.write.cron_broker import tick_name
from tests.faults.rig.conservation import check_conservation
from tests.kit.waiting import eventually

NOOP = "tests.jobs.basic.noop"


def now(conn: redis.Redis) -> float:
    """By the server's clock."""
    seconds, micros = conn.time()
    return int(seconds) + int(micros) / 1e6


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)


def window(conn: redis.Redis, ticks: int, lead: int = 1) -> dict[str, Any]:
    """`start` and `end` of an entry of `every(1)` that has this many ticks, the first in `lead` seconds."""
    start = at(int(now(conn)) + lead)
    return {"start": start, "end": start + timedelta(seconds=ticks - 1)}


def ticks_of(conn: redis.Redis, entry: str) -> list[int]:
    """The ticks that have a job, in order."""
    pattern = re.compile(rf"rq:job:cron-{entry}-(\d{{8}}T\d{{6}}Z)")
    names = (pattern.fullmatch(key.decode()) for key in conn.scan_iter(f"rq:job:cron-{entry}-*", count=1000))
    moments = (datetime.strptime(found[1], "%Y%m%dT%H%M%S%z") for found in names if found)
    return sorted(int(moment.timestamp()) for moment in moments)


def job_of(entry: str, tick: int) -> str:
    return f"cron-{entry}-{tick_name(tick)}"


def arrivals(conn: redis.Redis) -> Counter[str]:
    """How often each job came into a queue, by the events."""
    rows = (fields for _, fields in conn.xrange("rq:events"))
    return Counter(row[b"job_id"].decode() for row in rows if row[b"event"] == b"queued")


def each_once(conn: redis.Redis, entry: str, ticks: Iterable[int]) -> None:
    """Exactly these ticks have a job, each came into its queue once, and none is lost."""
    ticks = list(ticks)
    found = ticks_of(conn, entry)
    assert found == ticks, f"{len(set(ticks) - set(found))} missing, {len(set(found) - set(ticks))} too many of {len(ticks)}"
    came = arrivals(conn)
    assert {came[job_of(entry, tick)] for tick in ticks} <= {1}
    check_conservation(conn, [job_of(entry, tick) for tick in ticks])


def without_gap(ticks: list[int]) -> bool:
    return bool(ticks) and ticks == list(range(ticks[0], ticks[-1] + 1))


def entry_of(conn: redis.Redis, entry: str) -> EntryInfo:
    return Scheduler(conn).get(entry)


def mark_of(conn: redis.Redis, entry: str) -> int:
    return int(conn.zscore("rq:cron:marks", entry) or 0)


def set_mark(conn: redis.Redis, entry: str, mark: float) -> None:
    """As if `mark` were the last tick that was decided, and no scheduler had run since."""
    pipe = conn.pipeline()
    pipe.zadd("rq:cron:marks", {entry: int(mark)})
    pipe.zadd("rq:cron:due", {entry: 0})
    pipe.execute()
    ring(conn)


def look_again(conn: redis.Redis, entry: str) -> None:
    """As if the half minute were over for which a broken entry is put off."""
    conn.zadd("rq:cron:due", {entry: 0})
    ring(conn)


def ring(conn: redis.Redis) -> None:
    conn.rpush("rq:wake:_scheduler", "1")


def due_since(cron: Scheduler, conn: redis.Redis, *entries: str, ticks: int = 3, **options: Any) -> list[int]:
    """Entries of which each has this many ticks due, a minute apart, the newest half a minute old. Returns those."""
    newest = int(now(conn)) - 30
    for entry in entries:
        cron.every(60, NOOP, id=entry, **{"queue": "q", "misfire": "all", "start": at(newest - 60 * 5000), **options})
        set_mark(conn, entry, newest - 60 * ticks)
    return list(range(newest - 60 * (ticks - 1), newest + 1, 60))


def bells(conn: redis.Redis) -> int:
    """How many wait at the schedulers' doorbell."""
    return sum(client["cmd"] == "blpop" for client in conn.client_list())


def schedulers_of(conn: redis.Redis) -> dict[str, SchedulerInfo]:
    return {info.name: info for info in CronInspector(conn).schedulers()}


def waiting(conn: redis.Redis, queue: str) -> int:
    return int(conn.zcard(f"rq:queue:{queue}"))


def wait_until(conn: redis.Redis, moment: float) -> None:
    """The server's clock shows `moment`."""
    eventually(lambda: now(conn) >= moment, max(10.0, moment - now(conn) + 10.0), why="the clock")
