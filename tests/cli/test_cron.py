"""`cron list | next | history` on a real Redis, with a scheduler's hand but without a scheduler."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from typing import Any

import click
import pytest
import redis

from fusion import Queue
from fusion.cli.cron_render import EntryState, LastJob, coming, listing, ticks
from fusion.cron.entry import Entry, revision
from fusion.cron.plan import Plan
from fusion.cron.scheduler import Scheduler
from fusion.settings import Settings
from fusion.store.access import cron_broker_of
from fusion.store.read.cron_inspector import EntryInfo
from tests.cli.conftest import Hands, Invoke, run_worker
from tests.domain.cron_hands import TASK, Hourly, declare, look, now_s
from tests.domain.cron_hands import hourly as hourly
from tests.domain.cron_hands import scheduler as scheduler


@pytest.fixture
def alive(conn: redis.Redis) -> None:
    assert cron_broker_of(conn).scheduler_beat("web1.7", "incarnation", 30, 420, {"pid": 7, "hostname": "web1", "app": "shop"})


def rows(invoke: Invoke) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in json.loads(invoke("cron", "list", "--json").stdout)["entries"]}


# -- list


def test_list_for_people(
    invoke: Invoke, scheduler: Scheduler, conn: redis.Redis, hourly: Hourly, alive: None, hands: Hands
) -> None:
    hourly("nightly", queue="sms")
    declare(conn, "theirs")
    look(conn, "nightly", ticks=5)
    worker = hands("sms").register()
    worker.end("finished", worker.turn(slots=1))
    lines = invoke("cron", "list").stdout.splitlines()
    header = "ID WHEN NEXT LAST JOB QUEUE DECLARED BY STATE ENQUEUED MISSED OVERLAPPED"
    assert lines[0].split() == header.split()
    assert re.fullmatch(
        r"nightly  every 1h  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+0000 in 60 min  \d\d s ago  \d{8}T\d{6}Z finished  sms "
        r" +run time     active +1 +4 +0",
        lines[1],
    ), lines[1]
    assert re.fullmatch(r"theirs .* in \d+ (min|s) +- +- +default  shop 1\.4  +active +0 +0 +0", lines[2]), lines[2]
    assert len(lines) == 3


def test_list_as_json(invoke: Invoke, conn: redis.Redis, hourly: Hourly, alive: None) -> None:
    hourly(queue="sms", priority=2, misfire="all", overlap="skip", jitter=5)
    look(conn, "e", ticks=1)
    document = json.loads(invoke("cron", "list", "--json").stdout)
    assert (document["schema"], document["schedulers"]) == (1, ["web1.7"])
    (entry,) = document["entries"]
    fixed = {"id": "e", "when": "every 1h", "function": TASK, "queue": "sms", "priority": 2, "misfire": "all", "overlap": "skip"}
    fixed |= {"jitter": 5.0, "misfire_grace": None, "state": "active", "app": None, "version": None, "paused": None}
    fixed |= {"errors": [], "enqueued": 1, "missed": 0, "overlapped": 0, "manual_job": None}
    assert {name: entry[name] for name in fixed} == fixed
    assert entry["last"] == entry["mark"] < entry["next"]
    assert entry["last_job"] == {"id": Scheduler(conn).get("e").last_job, "status": "queued"}
    assert entry["plan"]["every"] == 3600


def test_the_newest_job_is_shown_by_hand_or_not_and_gone_when_it_is_gone(
    invoke: Invoke, scheduler: Scheduler, conn: redis.Redis, hourly: Hourly
) -> None:
    hourly()
    look(conn, "e", ticks=1)
    scheduler.run("e")
    assert "  manual-1 queued  " in invoke("cron", "list").stdout
    conn.delete("rq:job:cron-e-manual-1", f"rq:job:{scheduler.get('e').last_job}")
    assert re.search(r"  \d{8}T\d{6}Z gone  ", invoke("cron", "list").stdout)
    conn.set("rq:job:cron-e-manual-1", "no hash")
    assert rows(invoke)["e"]["manual_job"] == {"id": "cron-e-manual-1", "status": "corrupt"}


def test_no_scheduler_alive_is_the_last_line(invoke: Invoke, conn: redis.Redis, hourly: Hourly, alive: None) -> None:
    hourly()
    conn.hincrby("rq:scheduler:process:web1.7", "beat_ms", -31_000)
    said = invoke("cron", "list").stdout
    assert said.splitlines()[-1] == "No scheduler is alive: no entry runs. Start one: run_worker.py scheduler"
    assert json.loads(invoke("cron", "list", "--json").stdout)["schedulers"] == []


def test_no_entries(invoke: Invoke, conn: redis.Redis) -> None:
    assert invoke("cron", "list").stdout.startswith("No cron entries; code declares them (@recurring)")
    assert json.loads(invoke("cron", "list", "--json").stdout) == {"schema": 1, "schedulers": [], "entries": []}


def test_a_paused_entry_is_explained_below(invoke: Invoke, scheduler: Scheduler, hourly: Hourly, alive: None) -> None:
    hourly()
    scheduler.pause("e")
    lines = invoke("cron", "list").stdout.splitlines()
    assert re.fullmatch(r"e: paused since \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ; to go on: run_worker\.py cron resume e", lines[-1])
    entry = rows(invoke)["e"]
    assert (entry["state"], entry["next"]) == ("paused", None)
    assert entry["paused"].endswith("Z")


def test_an_entry_that_waits_for_its_mark_is_explained(invoke: Invoke, conn: redis.Redis, hourly: Hourly, alive: None) -> None:
    hourly()
    mark = now_s(conn) + 7200
    conn.zadd("rq:cron:marks", {"e": mark})
    until = f"{datetime.fromtimestamp(mark, timezone.utc):%Y-%m-%d %H:%M:%S} +0000"
    said = invoke("cron", "list").stdout
    assert f"e: the clock was set back: waits until {until}; to go on now: run_worker.py cron pause e; " in said
    assert rows(invoke)["e"]["state"] == "waits"
    invoke("cron", "pause", "e")
    invoke("cron", "resume", "e")
    assert rows(invoke)["e"]["state"] == "active"


def test_an_entry_that_has_ended(invoke: Invoke, scheduler: Scheduler, conn: redis.Redis) -> None:
    scheduler.every(60, TASK, id="e", end=datetime.fromtimestamp(now_s(conn) - 3600, timezone.utc))
    assert (rows(invoke)["e"]["state"], rows(invoke)["e"]["next"]) == ("ended", None)
    assert "has ended, no tick is left" in invoke("cron", "next", "e").stdout


def test_a_tick_that_no_scheduler_has_handled_is_shown_as_due(invoke: Invoke, conn: redis.Redis, hourly: Hourly) -> None:
    hourly()
    conn.zadd("rq:cron:marks", {"e": now_s(conn) - 3600})
    assert re.search(r"every 1h  \S+ \S+ \+0000 due \d\d s ago  ", invoke("cron", "list").stdout)


def test_full_errors_are_listed_below_the_table(
    invoke: Invoke, scheduler: Scheduler, conn: redis.Redis, hourly: Hourly, alive: None
) -> None:
    hourly("damaged")
    conn.hset("rq:cron:entry:damaged", "spec", "{}")
    hourly("failing")
    conn.hset("rq:cron:entry:failing", "error", "can't be planned: " + "x" * 200)
    declare(conn, "former")
    declare(conn, "former", error="'61' is not a valid minute")
    declare(conn, "new", error="it is declared twice")
    said = invoke("cron", "list").stdout
    assert re.search(r"^damaged: what is stored of it is damaged \(.*\); declare it again$", said, re.MULTILINE)
    assert "\nfailing: can't be planned: " + "x" * 200 + "\n" in said
    assert "\nformer: declared with a mistake: '61' is not a valid minute; the former declaration goes on\n" in said
    assert said.endswith("\nnew: declared with a mistake: it is declared twice\n")
    found = rows(invoke)
    assert {row["state"] for row in found.values()} == {"error"}
    assert (found["new"]["when"], found["new"]["queue"], found["former"]["when"]) == (None, None, "every 1h")


def info(plan: Plan, **fields: Any) -> EntryInfo:
    entry = Entry.make(TASK, plan, Settings(), id="e")
    text = dict.fromkeys(("app", "version", "error", "declared_error", "last_job", "manual_job"), "")
    numbers = dict.fromkeys(("enqueued", "overlapped", "missed"), 0)
    none = dict.fromkeys(("declared_at", "paused", "mark", "next"))
    given = {"id": "e", "plan": plan.to_json(), "spec": entry.spec(), "rev": "r", **text, **numbers, **none, **fields}
    return EntryInfo(**given)


T = 1_800_000_000  # a whole minute


@pytest.mark.parametrize(
    ("fields", "state", "next_tick", "last"),
    [
        ({"mark": T - 60, "enqueued": 1}, "active", T, T - 60),
        ({"mark": T, "missed": 1}, "active", T + 60, T),
        ({"mark": T - 59, "enqueued": 1}, "active", T, None),
        ({"mark": T}, "active", T + 60, None),
        ({"mark": None}, "active", T + 60, None),
        ({"mark": T + 3600, "enqueued": 1}, "waits", T + 3660, T + 3600),
        ({"mark": T, "paused": datetime(2026, 1, 1, tzinfo=timezone.utc)}, "paused", None, None),
        ({"mark": T, "error": "x"}, "error", T + 60, None),
    ],
)
def test_the_state_of_an_entry(fields: dict[str, Any], state: str, next_tick: int | None, last: int | None) -> None:
    view = EntryState.of(info(Plan.interval(60), **fields), T + 0.5)
    assert (view.state, view.next, view.last) == (state, next_tick, last)


def test_times_are_those_of_the_entrys_zone() -> None:
    plan = Plan.cron("30 2 * * *", "Europe/Berlin")
    jobs = {"cron-e-1": LastJob("cron-e-1", "failed")}
    view = EntryState.of(info(plan, mark=T, last_job="cron-e-1"), T + 0.5)
    line = click.unstyle(listing([view], jobs, "fusion")[1])
    assert "30 2 * * * Europe/Berlin  2027-01-16 02:30:00 +0100 in 17 h  -     1 failed  default" in line


# -- next


def test_next_of_an_expression_needs_no_redis() -> None:
    ended = run_worker("cron", "next", "30 2 * * *", "--timezone", "Europe/Berlin", "-n", "3")
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert lines[0].split()[:3] == ["LOCAL", "UTC", "IN"]
    assert len(lines) == 4
    local = [datetime.strptime(line[:25], "%Y-%m-%d %H:%M:%S %z") for line in lines[1:]]
    assert [f"{moment.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}" for moment in local] == [line[27:47] for line in lines[1:]]


def test_next_says_what_a_clock_change_does() -> None:
    plan = Plan.cron("30 2 * * *", "Europe/Berlin")
    before = int(datetime(2026, 3, 28, 12, tzinfo=timezone.utc).timestamp())
    lines = coming(plan, ticks(plan, before, 2), before)
    assert lines[0].split() == ["LOCAL", "UTC", "IN", "NOTE"]
    assert lines[1] == (
        "2026-03-29 03:00:00 +0200  2026-03-29T01:00:00Z  in 13 h  02:30 was skipped: clocks went forward to 03:00"
    )
    assert lines[2] == "2026-03-30 02:30:00 +0200  2026-03-30T00:30:00Z  in 36 h"


@pytest.mark.parametrize(
    ("what", "when"), [("@daily", "@daily UTC"), ("every 5m", "every 5m"), ("*/5 * * * *", "*/5 * * * * UTC")]
)
def test_next_reads_every_kind_of_plan(invoke: Invoke, what: str, when: str) -> None:
    document = json.loads(invoke("cron", "next", what, "-n", "2", "--json").stdout)
    assert (document["schema"], document["id"], document["when"], document["paused"]) == (1, None, when, False)
    first, second = document["ticks"]
    assert first["utc"] < second["utc"]
    assert first["note"] is None
    assert datetime.fromisoformat(first["local"]) == datetime.fromisoformat(first["utc"])


def test_next_of_an_entry(invoke: Invoke, scheduler: Scheduler) -> None:
    scheduler.cron("0 12 * * *", TASK, id="noon", timezone="Asia/Tokyo")
    document = json.loads(invoke("cron", "next", "noon", "--json").stdout)
    assert (document["id"], document["when"]) == ("noon", "0 12 * * * Asia/Tokyo")
    assert len(document["ticks"]) == 5
    assert all(tick["local"].endswith("T12:00:00+09:00") for tick in document["ticks"])
    scheduler.pause("noon")
    assert "noon is paused: none of them runs until run_worker.py cron resume noon" in invoke("cron", "next", "noon").stdout


# -- history


def test_history(invoke: Invoke, scheduler: Scheduler, conn: redis.Redis, hourly: Hourly) -> None:
    hourly(misfire="latest")
    assert invoke("cron", "history", "e").stdout == "Nothing yet: no tick of e was due\n"
    look(conn, "e", ticks=4)
    scheduler.run("e")
    lines = invoke("cron", "history", "e").stdout.splitlines()
    assert lines[0].split() == ["TICK", "DECIDED", "LATE", "OUTCOME", "JOB", "STATUS"]
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+0000"
    assert re.fullmatch(rf"{stamp}  {stamp}     -  manual    cron-e-manual-1  +queued", lines[1])
    assert re.fullmatch(rf"{stamp}  {stamp}  \d\d s  enqueued  cron-e-\d{{8}}T\d{{6}}Z  queued", lines[2])
    assert re.fullmatch(rf"{stamp}  {stamp}  \d\d s  missed    3 in all  +-", lines[3])
    assert len(invoke("cron", "history", "e", "-n", "1").stdout.splitlines()) == 2


def test_history_as_json(invoke: Invoke, conn: redis.Redis, hourly: Hourly) -> None:
    hourly(overlap="skip", misfire="all")
    look(conn, "e", ticks=2)
    document = json.loads(invoke("cron", "history", "e", "--json").stdout)
    assert (document["schema"], document["id"]) == (1, "e")
    overlap, enqueued = document["decisions"]
    assert (overlap["outcome"], enqueued["outcome"]) == ("overlap", "enqueued")
    assert overlap["job"] == enqueued["job"] == Queue("default", conn).get_jobs()[0].id
    assert (enqueued["status"], enqueued["missed"]) == ("queued", None)
    assert 3610 <= enqueued["late"] < 3670


# -- what earlier versions took


def test_next_refuses_steps_beyond_their_field_and_remarks_uneven_ones(invoke: Invoke) -> None:
    refused = run_worker("cron", "next", "*/90 * * * *")
    assert refused.returncode == 2
    assert 'use every="90m"' in " ".join(refused.stderr.split())
    said = run_worker("cron", "next", "*/45 * * * *").stdout
    remark = "'*/45': after minute 45 comes 0, so it is not every 45 minutes; for that use every=\"45m\""
    assert said.splitlines()[-1] == remark
    assert json.loads(run_worker("cron", "next", "*/45 * * * *", "--json").stdout)["remarks"] == [remark]
    assert json.loads(run_worker("cron", "next", "every 45m", "--json").stdout)["remarks"] == []


def test_list_says_what_is_stored_and_could_not_be_declared_today(invoke: Invoke, conn: redis.Redis, alive: None) -> None:
    spec = json.loads(Entry.make(TASK, Plan.cron("0 * * * *"), Settings(), id="old").spec()) | {"misfire_grace": 0}
    plan, stored = json.dumps({"cron": "*/90 * * * *", "timezone": "UTC"}), json.dumps(spec)
    cron_broker_of(conn).cron_put("old", plan, stored, revision(plan, stored))
    goes_on = "old: goes on, but change it, it can't be declared so again: "
    lines = [line for line in invoke("cron", "list").stdout.splitlines() if line.startswith(goes_on)]
    assert len(lines) == 2
    assert 'use every="90m"' in lines[0]
    assert lines[1].removeprefix(goes_on).startswith("misfire_grace=0: every tick is a little late")
    entry = rows(invoke)["old"]
    assert (entry["state"], entry["errors"], len(entry["faults"])) == ("active", [], 2)
    assert entry["next"] is not None
    assert 'use every="90m"' in invoke("cron", "next", "old").stdout


def test_at_run_time_they_are_refused_with_nothing_stored(scheduler: Scheduler, conn: redis.Redis) -> None:
    with pytest.raises(ValueError, match='use every="90m"'):
        scheduler.cron("*/90 * * * *", TASK, id="e")
    with pytest.raises(ValueError, match="misfire_grace=0: every tick is a little late"):
        scheduler.every("5m", TASK, id="e", misfire_grace=0)
    assert scheduler.ids() == []
