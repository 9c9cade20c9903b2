"""Cron entries made at run time on a real Redis, with a scheduler's hand but without a scheduler."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
import redis

from fusion import Job, Queue
from fusion.cron.plan import Plan
from fusion.cron.scheduler import Scheduler
from fusion.exceptions import EntryTaken, FusionError, InvalidJobOperation, NoSuchEntryError, SerializationError
from fusion.store.access import broker_of, cron_broker_of
from tests.domain.cron_hands import TASK, Hourly, due, look, now_s
from tests.domain.cron_hands import hourly as hourly
from tests.domain.cron_hands import scheduler as scheduler
from tests.jobs import basic
from tests.kit.hands import Hand, everything


def outcomes(scheduler: Scheduler, entry: str = "e") -> list[str]:
    return [one.outcome for one in scheduler.history(entry)]


# -- making and changing


def test_an_entry_is_stored_as_it_was_said(scheduler: Scheduler, conn: redis.Redis) -> None:
    assert scheduler.cron("*/5 * * * *", TASK, id="report", timezone="Europe/Berlin", queue="sms", overlap="skip") == "report"
    info = scheduler.get("report")
    assert Plan.from_json(info.plan).text == "*/5 * * * * Europe/Berlin"
    spec = json.loads(info.spec)
    assert (spec["func"], spec["queue"], spec["overlap"], spec["misfire"]) == (TASK, "sms", "skip", "latest")
    assert (info.app, info.version, info.paused, info.error, info.last_job) == ("", "", None, "", "")
    assert (info.enqueued, info.missed, info.overlapped) == (0, 0, 0)
    assert info.mark is not None
    assert abs(info.mark - now_s(conn)) <= 2, "what was planned before is not made up"
    assert scheduler.entries() == [info]


def test_entries_are_listed_by_id_and_named_after_their_function(scheduler: Scheduler) -> None:
    assert scheduler.every("5m", basic.noop) == "tests-jobs-basic-noop"
    assert scheduler.cron("@daily", TASK) == "tasks-sms-sendSMS"
    assert scheduler.every(90, TASK, id="a") == "a"
    assert scheduler.ids() == ["a", "tasks-sms-sendSMS", "tests-jobs-basic-noop"]
    assert [info.id for info in scheduler.entries()] == scheduler.ids()


def test_the_same_id_again_changes_the_entry(scheduler: Scheduler, conn: redis.Redis, hourly: Hourly) -> None:
    hourly(args=(1,))
    look(conn, "e", ticks=1)
    before = scheduler.get("e")
    hourly(args=(1,))
    assert scheduler.get("e").rev == before.rev, "the same said twice"
    hourly(args=(2,), queue="email")
    after = scheduler.get("e")
    assert after.rev != before.rev
    assert (after.plan, after.mark, after.enqueued) == (before.plan, before.mark, 1), "what was decided stays decided"
    scheduler.cron("@yearly", TASK, id="e")
    assert Plan.from_json(scheduler.get("e").plan).text == "@yearly UTC"
    assert scheduler.ids() == ["e"]


def test_an_entry_that_code_declares_is_not_changed_at_run_time(scheduler: Scheduler, conn: redis.Redis) -> None:
    scheduler.every(60, TASK, id="theirs")
    info = scheduler.get("theirs")
    scheduler.remove("theirs")
    cron_broker_of(conn).cron_put("theirs", info.plan, info.spec, info.rev, app="shop", version="2")
    with pytest.raises(EntryTaken, match="'theirs' is declared by app 'shop'; choose another id, or change it there"):
        scheduler.every(90, TASK, id="theirs")
    assert (scheduler.get("theirs").plan, scheduler.get("theirs").app) == (info.plan, "shop")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda s: s.cron("* * * *", TASK), "has 4 fields; a cron expression has five"),
        (lambda s: s.cron("61 * * * *", TASK), "'61' is not a valid minute"),
        (lambda s: s.cron("@reboot", TASK), "enqueue the job where the service starts"),
        (lambda s: s.cron("* * * * *", TASK, timezone="Berlin"), "timezone='Berlin' is not known here; use an IANA name"),
        (lambda s: s.cron("* * * * *", TASK, start=datetime(2026, 1, 1)), "start=.* has no time zone"),  # noqa: DTZ001
        (lambda s: s.every(0.5, TASK), "use whole seconds"),
        (lambda s: s.every("soon", TASK), "'soon' is not a duration"),
        (lambda s: s.every(60, TASK, misfire="once"), "use 'latest', 'all' or 'skip'"),
        (lambda s: s.every(60, TASK, timezone="UTC"), "timezone= is not an option"),
        (lambda s: s.every(60, TASK, id="a:b"), "cron entry id 'a:b'"),
        (lambda s: s.every(60, lambda: None), "a lambda has no name"),
        (lambda s: s.every(60, "tasks." + "a" * 250), "use a name of up to 255 bytes"),
        (lambda s: s.every(60, TASK, args=(object(),)), "object"),
    ],
)
def test_a_mistake_is_refused_at_once_and_nothing_is_stored(
    scheduler: Scheduler, conn: redis.Redis, make: Callable[[Scheduler], str], message: str
) -> None:
    with pytest.raises((ValueError, SerializationError), match=message):
        make(scheduler)
    assert everything(conn) == {}


# -- ticks


def test_a_tick_becomes_one_job_with_all_options_of_its_entry(scheduler: Scheduler, conn: redis.Redis, hourly: Hourly) -> None:
    hourly(queue="sms", args=({"to": "x"},), kwargs={"n": 1}, priority=2, job_timeout="5m", ttl="10m", log_tag="SMS_OTP")
    assert look(conn, "e", ticks=1) == ("ok", 1, 0)
    (decision,) = scheduler.history("e")
    job = Job.fetch(decision.what, conn)
    assert job.id == f"cron-e-{decision.tick:%Y%m%dT%H%M%SZ}" == scheduler.get("e").last_job
    assert (job.origin, job.priority, job.timeout, job.log_tag) == ("sms", 2, 300, "SMS_OTP")
    assert (job.func_name, job.args, job.kwargs) == (TASK, ({"to": "x"},), {"n": 1})
    assert [job.id for job in Queue("sms", conn).get_jobs()] == [decision.what]
    assert 10 <= (decision.at - decision.tick).total_seconds() < 60
    assert due(conn) == []


@pytest.mark.parametrize(
    ("options", "enqueued", "missed"),
    [({}, 1, 4), ({"misfire": "all"}, 5, 0), ({"misfire": "skip", "misfire_grace": 5}, 0, 5)],
)
def test_missed_ticks_are_counted(
    scheduler: Scheduler, conn: redis.Redis, hourly: Hourly, options: dict[str, Any], enqueued: int, missed: int
) -> None:
    hourly(**options)
    assert look(conn, "e", ticks=5) == ("ok", enqueued, 0)
    info = scheduler.get("e")
    assert (info.enqueued, info.missed) == (enqueued, missed)
    assert [one.what for one in scheduler.history("e") if one.outcome == "missed"] == ([str(missed)] if missed else [])
    assert Queue("default", conn).count == enqueued


def test_a_tick_is_skipped_while_a_job_of_the_entry_has_not_ended(
    scheduler: Scheduler, conn: redis.Redis, hourly: Hourly
) -> None:
    hourly(overlap="skip", misfire="all")
    assert look(conn, "e", ticks=3) == ("ok", 1, 2)
    (waiting,) = Queue("default", conn).get_jobs()
    assert outcomes(scheduler) == ["overlap", "overlap", "enqueued"]
    assert {one.what for one in scheduler.history("e")} == {waiting.id}
    assert (scheduler.get("e").enqueued, scheduler.get("e").overlapped, scheduler.get("e").missed) == (1, 2, 0)


def test_a_job_that_ended_keeps_no_tick_back(scheduler: Scheduler, conn: redis.Redis, hourly: Hourly) -> None:
    hourly(overlap="skip")
    first = scheduler.run("e")
    hand = Hand(broker_of(conn), "default")
    hand.tell(hand.take(), "failed", reason="ValueError: boom")
    assert Job.fetch(first.id, conn).is_failed
    assert look(conn, "e", ticks=1) == ("ok", 1, 0)


def test_history_is_newest_first_and_limited(scheduler: Scheduler, conn: redis.Redis, hourly: Hourly) -> None:
    hourly()
    look(conn, "e", ticks=3)
    scheduler.run("e")
    assert outcomes(scheduler) == ["manual", "enqueued", "missed"]
    assert [one.outcome for one in scheduler.history("e", 1)] == ["manual"]
    assert scheduler.history("e", 0) == []


# -- by hand


def test_run_now_makes_a_job_and_leaves_the_ticks_alone(scheduler: Scheduler, conn: redis.Redis, hourly: Hourly) -> None:
    hourly(queue="sms", args=(7,))
    mark = scheduler.get("e").mark
    jobs = [scheduler.run("e") for _ in range(2)]
    assert [job.id for job in jobs] == ["cron-e-manual-1", "cron-e-manual-2"]
    assert [job.args for job in jobs] == [(7,), (7,)]
    assert [job.id for job in Queue("sms", conn).get_jobs()] == ["cron-e-manual-1", "cron-e-manual-2"]
    assert scheduler.get("e").mark == mark
    assert scheduler.get("e").manual_job == "cron-e-manual-2"


def test_run_now_does_not_overlap_unless_forced(scheduler: Scheduler, conn: redis.Redis, hourly: Hourly) -> None:
    hourly(overlap="skip")
    first = scheduler.run("e")
    with pytest.raises(InvalidJobOperation, match=r"job cron-e-manual-1 of cron entry 'e' has not ended.*; use force"):
        scheduler.run("e")
    assert scheduler.run("e", force=True).id == "cron-e-manual-2"
    hand = Hand(broker_of(conn), "default")
    for claimed in hand.claim(2):
        hand.tell(claimed)
    assert Job.fetch(first.id, conn).is_finished
    assert scheduler.run("e").id == "cron-e-manual-3"


def test_a_tick_waits_for_a_job_by_hand_too(scheduler: Scheduler, conn: redis.Redis, hourly: Hourly) -> None:
    hourly(overlap="skip")
    by_hand = scheduler.run("e")
    assert look(conn, "e", ticks=1) == ("ok", 0, 1)
    (decision, _) = scheduler.history("e")
    assert (decision.outcome, decision.what) == ("overlap", by_hand.id)
    assert scheduler.get("e").overlapped == 1


def test_an_entry_that_was_only_declared_wrongly_can_not_be_run(scheduler: Scheduler, conn: redis.Redis) -> None:
    cron_broker_of(conn).cron_put("e", "", "", "", app="shop", version="1", error="'61' is not a valid minute")
    with pytest.raises(InvalidJobOperation, match="was declared with a mistake: '61' is not a valid minute"):
        scheduler.run("e")
    assert scheduler.get("e").declared_error == "'61' is not a valid minute"


# -- pause, resume, remove


def test_a_paused_entry_has_no_ticks_and_makes_none_up(scheduler: Scheduler, conn: redis.Redis, hourly: Hourly) -> None:
    hourly(misfire="all")
    look(conn, "e", ticks=1)
    conn.zadd("rq:cron:marks", {"e": now_s(conn) - 3 * 3600})
    scheduler.pause("e")
    assert scheduler.get("e").paused is not None
    assert due(conn) == []
    assert scheduler.resume("e") is True
    assert scheduler.get("e").paused is None
    assert look(conn, "e") == ("ok", 0, 0), "what passed meanwhile is not made up"
    assert scheduler.resume("e") is False
    assert scheduler.get("e").missed == 0


def test_a_paused_entry_stays_paused_when_it_is_changed_and_runs_by_hand(
    scheduler: Scheduler, conn: redis.Redis, hourly: Hourly
) -> None:
    hourly()
    scheduler.pause("e")
    since = scheduler.get("e").paused
    scheduler.pause("e")
    scheduler.cron("* * * * *", TASK, id="e")
    assert scheduler.get("e").paused == since
    assert due(conn) == []
    assert scheduler.run("e").id == "cron-e-manual-1"


def test_remove_forgets_the_entry_and_keeps_its_jobs(scheduler: Scheduler, conn: redis.Redis, hourly: Hourly) -> None:
    hourly()
    look(conn, "e", ticks=1)
    job_id = scheduler.get("e").last_job
    scheduler.remove("e")
    assert scheduler.ids() == []
    assert Job.exists(job_id, conn)
    hourly()
    assert look(conn, "e", ticks=1) == ("ok", 0, 0), "the tick's job is there already"
    assert outcomes(scheduler) == ["exists"]


@pytest.mark.parametrize("name", ["get", "history", "pause", "resume", "remove", "run"])
def test_an_entry_that_there_is_not(scheduler: Scheduler, name: str) -> None:
    with pytest.raises(NoSuchEntryError, match="no cron entry 'nobody'") as caught:
        getattr(scheduler, name)("nobody")
    assert isinstance(caught.value, FusionError)


def test_the_connection_of_the_context_is_used(conn: redis.Redis) -> None:
    Scheduler().every(60, TASK, id="e")
    assert Scheduler(conn).ids() == ["e"]
