"""What is broken is reported and put off; the rest is on time. What was mended runs again."""

from __future__ import annotations

import pytest
import redis

from fusion.cron.scheduler import Scheduler
from fusion.store.write.broker import Broker
from tests.kit.hands import new
from tests.kit.schedulers import SchedulerProcess, Schedulers
from tests.kit.waiting import eventually
from tests.scheduler.harness import NOOP, entry_of, look_again, now, schedulers_of, ticks_of, without_gap


def _lines(scheduler: SchedulerProcess, *words: str) -> int:
    return sum(all(word in line for word in words) for line in scheduler.output.splitlines())


def test_a_broken_entry_does_not_delay_others_and_runs_once_corrected(
    schedulers: Schedulers, cron: Scheduler, conn: redis.Redis
) -> None:
    broken = ("spec", "zone", "queue", "key", "job")
    for entry in ("good", *broken):
        cron.every(1, NOOP, id=entry, queue=f"q-{entry}", misfire="all")
    spec = conn.hget("rq:cron:entry:spec", "spec")
    conn.hset("rq:cron:entry:spec", "spec", "{")
    conn.hset("rq:cron:entry:job", "spec", b'{"format":99}')
    conn.hset("rq:cron:entry:zone", "plan", '{"cron": "* * * * *", "timezone": "Nowhere/City"}')
    conn.set("rq:queue:q-queue", "another program's")
    conn.delete("rq:cron:entry:key")
    conn.set("rq:cron:entry:key", "another program's")

    scheduler = schedulers.start()
    eventually(lambda: len(ticks_of(conn, "good")) >= 2)
    # Its ticks may be two of the past: then the others' turn comes later in the same round.
    scheduler.says("cron entry key can't be planned")
    eventually(lambda: all(entry_of(conn, entry).error for entry in ("spec", "zone", "queue", "job")))
    assert without_gap(ticks_of(conn, "good"))
    assert [ticks_of(conn, entry) for entry in broken] == [[]] * 5
    assert "declare it again" in entry_of(conn, "spec").error
    assert "upgrade it" in entry_of(conn, "job").error
    assert "Nowhere/City" in entry_of(conn, "zone").error
    assert "WRONGTYPE" in entry_of(conn, "queue").error
    eventually(
        lambda: all(_lines(scheduler, f"cron entry {entry}", "half a minute") for entry in ("spec", "zone", "queue", "job"))
    )
    assert [_lines(scheduler, f"cron entry {entry}", "half a minute") for entry in ("spec", "zone", "queue", "job")] == [1] * 4
    assert "Redis is away" not in scheduler.output

    conn.delete("rq:queue:q-queue", "rq:cron:entry:key")
    assert spec is not None
    conn.hset("rq:cron:entry:job", "spec", spec.replace(b"q-spec", b"q-job"))
    for entry in ("spec", "zone", "key"):  # as a scheduler does that is started, or told to reload
        cron.every(1, NOOP, id=entry, queue=f"q-{entry}", misfire="all")
    for entry in ("queue", "job"):
        look_again(conn, entry)
    for entry in broken:
        eventually(lambda entry=entry: ticks_of(conn, entry), why=f"{entry} runs")  # type: ignore[misc]
    assert {entry_of(conn, entry).error for entry in ("good", *broken)} == {""}
    assert without_gap(ticks_of(conn, "good"))
    assert ticks_of(conn, "queue")[0] < ticks_of(conn, "key")[0], "the ticks it could not run were kept"


@pytest.mark.long
def test_a_postponed_entry_is_examined_again(schedulers: Schedulers, cron: Scheduler, conn: redis.Redis) -> None:
    cron.every(1, NOOP, id="e", queue="q")
    conn.hset("rq:cron:entry:e", "plan", "{}")
    schedulers.start()
    eventually(lambda: entry_of(conn, "e").error)
    due = conn.zscore("rq:cron:due", "e")
    assert due is not None
    assert 0 < due - now(conn) <= 30


@pytest.mark.long
def test_an_index_that_is_none_keeps_nobody_from_the_other_duties(
    schedulers: Schedulers, cron: Scheduler, conn: redis.Redis
) -> None:
    conn.set("rq:cron:due", "another program's")
    scheduler = schedulers.start("--lease", "0.9")
    scheduler.says("cron entries can't be looked after")
    Broker(conn).enqueue("q", [new("j", delay=0.1)], "n")
    eventually(lambda: conn.zcard("rq:queue:q") == 1, why="due jobs are moved")
    began = now(conn)
    eventually(lambda: now(conn) > began + 1, why="longer than its lease")
    assert schedulers_of(conn)[scheduler.name].alive
    assert _lines(scheduler, "can't be looked after") == 1
    conn.delete("rq:cron:due")
    cron.every(1, NOOP, id="e", queue="q")
    eventually(lambda: ticks_of(conn, "e"))
    scheduler.says("cron entries are looked after again")
    assert "Redis is away" not in scheduler.output


def test_a_schedule_that_is_none_keeps_no_tick_waiting(schedulers: Schedulers, cron: Scheduler, conn: redis.Redis) -> None:
    conn.set("rq:scheduler:scheduled_jobs", "another program's")
    cron.every(1, NOOP, id="e", queue="q", misfire="all")
    scheduler = schedulers.start()
    scheduler.says("moving due jobs to their queues failed")
    eventually(lambda: len(ticks_of(conn, "e")) >= 2)
    assert without_gap(ticks_of(conn, "e"))
    conn.delete("rq:scheduler:scheduled_jobs")
    Broker(conn).enqueue("late", [new("j", delay=0.1)], "n")
    eventually(lambda: conn.zcard("rq:queue:late") == 1)
    scheduler.says("moving due jobs to their queues works again")
    assert _lines(scheduler, "moving due jobs", "failed") == 1
    assert "Redis is away" not in scheduler.output
