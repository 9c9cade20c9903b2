"""What happens to ticks that could not run as planned: nobody was there, a job of the entry still runs, it is paused, it has ended."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Job
from fusion.cron.entry import Entry, revision
from fusion.cron.plan import Plan
from fusion.cron.scheduler import Scheduler
from fusion.settings import Settings
from fusion.store.access import cron_broker_of
from tests.kit.schedulers import Schedulers
from tests.kit.waiting import eventually
from tests.kit.witnesses import status_of
from tests.kit.workers import Workers
from tests.scheduler.harness import (
    NOOP,
    at,
    due_since,
    each_once,
    entry_of,
    job_of,
    mark_of,
    now,
    ticks_of,
    wait_until,
    window,
    without_gap,
)

#: Options, how many of five ticks run (they are a minute apart, the newest half a minute old), and what the log says of it.
_POLICIES: dict[str, tuple[dict[str, Any], int, str]] = {
    "latest": ({"misfire": "latest"}, 1, "1 job(s) for {}"),
    "latest-in-time": ({"misfire": "latest", "misfire_grace": 20}, 0, "5 tick(s) up to {} missed"),
    "all": ({"misfire": "all"}, 5, "5 job(s) for ticks up to {}"),
    "all-in-time": ({"misfire": "all", "misfire_grace": "2m"}, 2, "2 job(s) for ticks up to {}"),
    "skip": ({"misfire": "skip"}, 0, "5 tick(s) up to {} missed"),
    "skip-in-time": ({"misfire": "skip", "misfire_grace": 50}, 1, "4 tick(s) before {} missed"),
}


def test_after_downtime_the_policy_says_which_ticks_run(schedulers: Schedulers, cron: Scheduler, conn: redis.Redis) -> None:
    due = {entry: due_since(cron, conn, entry, ticks=5, **options) for entry, (options, _, _) in _POLICIES.items()}
    long = due_since(cron, conn, "long", ticks=150)
    scheduler = schedulers.start()
    for entry, (_, count, says) in _POLICIES.items():
        ticks = due[entry]
        eventually(lambda entry=entry, ticks=ticks: mark_of(conn, entry) == ticks[-1])  # type: ignore[misc]
        each_once(conn, entry, ticks[5 - count :])
        info = entry_of(conn, entry)
        assert (info.enqueued, info.missed, info.next) == (count, 5 - count, ticks[-1] + 60)
        outcomes = [(line.outcome, line.what) for line in cron.history(entry)]
        expected = [("enqueued", job_of(entry, tick)) for tick in reversed(ticks[5 - count :])]
        assert outcomes == expected + [("missed", str(5 - count))] * (count < 5)
        scheduler.says(f"cron entry {entry}: " + says.format(at(ticks[-1]).strftime("%Y-%m-%dT%H:%M:%SZ")))
    eventually(lambda: mark_of(conn, "long") == long[-1])
    each_once(conn, "long", long[50:])
    assert entry_of(conn, "long").missed == 50, "`all` makes up the newest hundred"


@pytest.mark.long
def test_a_stop_of_some_seconds_costs_what_the_policies_say(schedulers: Schedulers, cron: Scheduler, conn: redis.Redis) -> None:
    for policy in ("all", "latest", "skip"):
        cron.every(1, NOOP, id=policy, queue="q", misfire=policy, misfire_grace=1.5 if policy == "skip" else None)
    made = {policy: mark_of(conn, policy) for policy in ("latest", "skip")}
    first = schedulers.start()
    eventually(lambda: all(ticks_of(conn, policy) for policy in ("all", "latest", "skip")))
    first.kill()
    stood = mark_of(conn, "all")
    wait_until(conn, stood + 3)
    second = schedulers.start()
    eventually(lambda: mark_of(conn, "skip") > stood + 4)
    second.kill()
    assert without_gap(ticks_of(conn, "all"))
    for policy in ("latest", "skip"):
        ticks, info = ticks_of(conn, policy), entry_of(conn, policy)
        assert not without_gap(ticks)
        assert info.missed >= 1
        assert len(ticks) + info.missed == (info.mark or 0) - made[policy], "each tick ran, or was counted as missed"


def test_an_entry_that_was_stored_with_no_grace_runs(schedulers: Schedulers, cron: Scheduler, conn: redis.Redis) -> None:
    """Earlier versions took `misfire_grace=0`, with which every tick was too late."""
    entry = Entry.make(NOOP, Plan.interval(1), Settings(), id="e", queue="q")
    plan, spec = entry.plan.to_json(), entry.spec().replace('"misfire_grace":null', '"misfire_grace":0')
    assert spec != entry.spec()
    cron_broker_of(conn).cron_put("e", plan, spec, revision(plan, spec))
    schedulers.start()
    eventually(lambda: entry_of(conn, "e").enqueued >= 2, why="its ticks run")


def test_an_expression_that_was_stored_with_a_step_beyond_its_field_goes_on(
    schedulers: Schedulers, cron: Scheduler, conn: redis.Redis
) -> None:
    """Earlier versions took `*/90` and ran it at each full hour."""
    plan = json.dumps({"cron": "*/90 * * * *", "timezone": "UTC"})
    spec = Entry.make(NOOP, Plan.cron("0 * * * *"), Settings(), id="e", queue="q").spec()
    cron_broker_of(conn).cron_put("e", plan, spec, revision(plan, spec))
    hour = int(now(conn)) // 3600 * 3600
    conn.zadd("rq:cron:marks", {"e": hour - 1})
    conn.zadd("rq:cron:due", {"e": hour})
    schedulers.start()
    eventually(lambda: ticks_of(conn, "e") == [hour])
    info = entry_of(conn, "e")
    assert (info.next, info.error) == (hour + 3600, "")


@pytest.mark.long
def test_no_tick_runs_while_a_job_of_the_entry_has_not_ended(
    schedulers: Schedulers, workers: Workers, cron: Scheduler, conn: redis.Redis, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    workers.start("q")
    cron.every(1, "tests.jobs.basic.until_gone", id="e", queue="q", args=[str(gate)], overlap="skip", misfire="all")
    scheduler = schedulers.start()
    eventually(lambda: entry_of(conn, "e").overlapped >= 2, why="two ticks are skipped")
    (tick,) = ticks_of(conn, "e")
    assert status_of(conn, job_of("e", tick)) == "started"
    scheduler.says("cron entry e: 1 tick(s) skipped, a job of it has not ended", times=2)
    gate.unlink()
    eventually(lambda: entry_of(conn, "e").enqueued >= 2, why="it runs again")
    scheduler.kill()
    info = entry_of(conn, "e")
    assert (info.mark or 0) - tick + 1 == info.enqueued + info.overlapped, "skipped ticks are not made up"
    assert {line.outcome for line in cron.history("e")} == {"enqueued", "overlap"}


@pytest.mark.long
def test_jobs_put_off_by_jitter_arrive_spread(schedulers: Schedulers, cron: Scheduler, conn: redis.Redis) -> None:
    schedulers.start()  # first: one that comes late makes all up at once
    bounds = window(conn, 2, lead=2)
    entries = [cron.every(1, NOOP, id=f"e{i}", queue="q", jitter=0.8, misfire="all", **bounds) for i in range(4)]
    first = int(bounds["start"].timestamp())
    eventually(lambda: conn.zcard("rq:queue:q") == 8, why="all have arrived")
    late = set()
    for entry in entries:
        each_once(conn, entry, [first, first + 1])
        for tick in (first, first + 1):
            job = Job.fetch(job_of(entry, tick), conn)
            assert job.enqueued_at is not None
            late.add(round((job.enqueued_at - at(tick)).total_seconds(), 2))
    assert min(late) >= 0
    assert len(late) > 2


@pytest.mark.long
def test_a_paused_entry_runs_no_tick_and_makes_none_up(schedulers: Schedulers, cron: Scheduler, conn: redis.Redis) -> None:
    cron.every(1, NOOP, id="e", queue="q", misfire="all")
    cron.every(1, NOOP, id="beside", queue="q")
    schedulers.start()
    eventually(lambda: ticks_of(conn, "e"))
    cron.pause("e")
    paused = int(now(conn))
    ran = ticks_of(conn, "e")
    assert cron.run("e").id == "cron-e-manual-1", "by hand it runs"
    eventually(lambda: mark_of(conn, "beside") >= paused + 2, why="the others tick on")
    assert ticks_of(conn, "e") == ran
    assert entry_of(conn, "e").next is None
    assert cron.resume("e")
    resumed = int(now(conn))
    eventually(lambda: len(ticks_of(conn, "e")) > len(ran))
    assert ticks_of(conn, "e")[len(ran)] >= resumed
    assert entry_of(conn, "e").missed == 0


@pytest.mark.long
def test_an_entry_that_has_ended_stays_and_runs_no_more(schedulers: Schedulers, cron: Scheduler, conn: redis.Redis) -> None:
    bounds = window(conn, 1, lead=2)
    cron.every(1, NOOP, id="e", queue="q", misfire="all", **bounds)
    schedulers.start()
    last = int(bounds["end"].timestamp())
    eventually(lambda: mark_of(conn, "e") == last)
    eventually(lambda: entry_of(conn, "e").next is None)
    assert conn.zscore("rq:cron:due", "e") == float("inf")
    each_once(conn, "e", [last])
    cron.every(1, NOOP, id="e", queue="q", misfire="all", start=bounds["start"], end=bounds["end"] + timedelta(minutes=1))
    eventually(lambda: mark_of(conn, "e") > last, why="with a later end it goes on")
