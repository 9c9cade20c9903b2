"""What `info` says, from made-up snapshots: no Redis, no clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import click
import pytest

from fusion.cli import bounds, render
from fusion.cli.context import seconds
from fusion.cli.output import styled
from fusion.cli.screen import screen
from fusion.cli.tables import folded, table
from fusion.doctor.finding import Finding
from fusion.doctor.verdict import Verdict
from fusion.jobs.moment import RunningJob
from fusion.store.layout.gates import Gate
from fusion.store.read.callback_inspector import CallbackCounts
from fusion.store.read.event_inspector import SinkInfo
from fusion.store.read.inspector import QueueInfo, Totals, WorkerInfo
from fusion.store.read.queue_inspector import Flow

AT = datetime(2026, 1, 31, 12, 0, tzinfo=timezone.utc)
PN = QueueInfo("pn", low=0, moderate=0, high=0, inbox=0, started=0, finished=0, deferred=0, canceled=0, oldest=None, at=AT)
SMS = replace(
    PN, name="sms", low=1, moderate=2, high=3, started=4, finished=5, deferred=6, canceled=7, oldest=AT - timedelta(seconds=90)
)
WORKER = WorkerInfo(
    name="web1.7",
    state="busy",
    queues=("sms", "em*"),
    current_job="j1",
    hostname="web1",
    pid=7,
    birth=AT - timedelta(hours=1),
    last_heartbeat=AT - timedelta(seconds=3),
    alive=True,
    successful_jobs=10,
    failed_jobs=2,
    working_seconds=1.5,
)
QUIET = Totals(failed=0, scheduled=0, suspended=False)


GATED = replace(
    SMS, bounds=Gate.of({"limit": "20", "rate": "10/1000/3", "max_wait": "300000", "until": "1769851800000"}, closed=True)
)


def snapshot(*queues: QueueInfo, workers: tuple[WorkerInfo, ...] | None = (WORKER,), **others: Any) -> render.Snapshot:
    names = tuple(queue.name for queue in queues)
    given = {"at": AT, "totals": QUIET, "names": names, "queues": queues, "workers": workers}
    return render.Snapshot(**{**given, "schedulers": (), "cron": render.CronTotals(), **others})


def plain(*args: Any, **kwargs: Any) -> str:
    return click.unstyle(render.text(*args, **kwargs))


def test_a_queue_with_a_limit_that_waits_for_its_rate() -> None:
    lines = plain(snapshot(GATED)).split("\n")
    assert lines[1].split() == ["sms", "(rate-limited)", "3", "2", "1", "6", "90", "s", "4/20", "5", "6", "-", "-", "-"]


def test_the_whole_of_it() -> None:
    assert plain(snapshot(replace(SMS, flow=Flow(120.0, 3.0, 0.5)), PN)) == (
        "QUEUE  HIGH  MODERATE  LOW  TOTAL  OLDEST  STARTED  FINISHED  DEFERRED  FAILED/M  IN/M  OUT/M\n"
        "sms       3         2    1      6    90 s        4         5         6       0.5   120    3.0\n"
        "pn        0         0    0      0       -        0         0         0         -     -      -\n"
        "\n"
        "WORKER  STATE  JOB  QUEUES    HEARTBEAT  FINISHED  FAILED\n"
        "web1.7  busy   j1   sms, em*  3.0 s ago        10       2\n"
        "\n"
        "1 workers, 2 queues\n"
        "2 queues, 6 jobs total"
    )


def test_figures_that_need_attention_are_coloured() -> None:
    old, older = (replace(SMS, name=name, oldest=AT - timedelta(minutes=age)) for name, age in (("a", 6), ("b", 31)))
    text = render.text(snapshot(replace(SMS, flow=Flow(1, 1, 1)), old, older, totals=Totals(7, 0, False)))
    assert styled("6 min", "yellow") in text
    assert styled("31 min", "red") in text
    assert "90 s" in text
    assert styled("90 s", "yellow") not in text
    assert styled("1.0", "red") in text
    assert styled("7 failed, of all queues; to see why: run_worker.py failures", "red") in text


def test_sinks_callbacks_and_jobs_of_a_worker_that_runs_several() -> None:
    sink = SinkInfo("es", 1200, 90.0, 5, 2, 0, AT, 3, True, "boom", AT, "", None, 1.0)
    jobs = tuple(RunningJob(f"j{n}", "web1.7", "sms", "t.f", AT - timedelta(seconds=90), 100.0, None, 1) for n in range(25))
    text = plain(snapshot(SMS, sinks=(sink,), callbacks=CallbackCounts(12, 1, 0, 0), running=jobs))
    assert (
        "The sink es: 1,200 events behind, the oldest 90 s old, it fails, 2 parked; to see more: run_worker.py events stats"
        in text
    )
    assert "12 callbacks wait to be delivered, 1 endpoints accept no more; to see more: run_worker.py callbacks list" in text
    assert "web1.7     t.f       j0   sms    90 s" in text
    assert "... and 5 more" in text


def test_the_last_line_is_rqs() -> None:
    assert plain(snapshot(SMS, workers=None)).splitlines()[-1] == "1 queues, 6 jobs total"
    assert plain(snapshot(queues=None, names=("a", "b"))).splitlines()[-1] == "1 workers, 2 queues"


def test_only_what_was_asked_for() -> None:
    assert "WORKER" not in plain(snapshot(SMS, workers=None))
    assert "QUEUE " not in plain(snapshot(queues=None, names=("sms",)))


def test_jobs_in_an_inbox_count_as_waiting() -> None:
    line = plain(snapshot(replace(PN, name="scheduler", inbox=8))).splitlines()[1]
    assert line.split()[1:5] == ["0", "8", "0", "8"]


def test_a_dead_worker_is_marked_and_explained() -> None:
    said = plain(snapshot(SMS, workers=(replace(WORKER, alive=False), replace(WORKER, name="web2.1"))))
    assert "web1.7  dead" in said
    assert "1 dead: a live worker gives their jobs back" in said
    assert "No worker is alive" not in said


@pytest.mark.parametrize("workers", [(), (replace(WORKER, alive=False),)])
def test_no_worker_alive_is_said_in_words(workers: tuple[WorkerInfo, ...]) -> None:
    said = plain(snapshot(SMS, workers=workers), program="fusion")
    assert "No worker is alive: nothing runs, and no scheduled job becomes due. Start one: fusion worker sms" in said


def test_no_worker_for_the_chosen_queues() -> None:
    said = plain(snapshot(SMS, PN, workers=(), chosen=True))
    assert "No live worker serves these. Start one: run_worker.py worker sms pn" in said


def test_waiting_jobs_that_nobody_serves() -> None:
    said = plain(snapshot(replace(SMS, name="push"), replace(SMS, name="email"), PN))
    assert "Jobs wait, but no live worker serves: push\n" in said


def test_suspended_failed_scheduled_and_unseen() -> None:
    said = plain(snapshot(SMS, totals=Totals(7, 3, True), unseen=("smss",)))
    assert "7 failed, of all queues; to see why: run_worker.py failures\n" in said
    assert "3 scheduled, of all queues; no scheduler is alive, workers queue them when they are due\n" in said
    assert "Suspended: no new job is started until run_worker.py resume\n" in said
    assert "No job was ever enqueued to: smss\n" in said
    for word in ("failed,", "scheduled,", "Suspended", "ever"):
        assert word not in plain(snapshot(SMS))


def test_workers_by_queue() -> None:
    said = plain(snapshot(SMS, replace(PN, name="emails"), PN), by_queue=True)
    assert "sms:    web1.7 (busy)\nemails: web1.7 (busy)\npn:     \u2013\n" in said


def test_the_line_of_the_verdict_never_has_two_parentheses_in_a_row() -> None:
    causes = [Finding("FUS-401", "warn", "queues", "", "nobody serves sms", fix) for fix in ("start a worker (web1)", "x")]
    said = [
        click.unstyle(bounds.verdict(Verdict("strained", (one, *more), 2.5), "fusion"))
        for one, more in ((causes[0], []), (causes[1], causes))
    ]
    assert said == [
        "strained: nobody serves sms; start a worker (web1); see fusion doctor; 2.5 jobs end a minute",
        "strained: nobody serves sms; x; and 2 more; see fusion doctor; 2.5 jobs end a minute",
    ]


def test_raw_lines_are_rqs() -> None:
    assert render.raw(snapshot(SMS, totals=Totals(9, 0, False))) == (
        "queue sms 6, 4 executing, 5 finished, 0 failed\n"
        "queue failed 9, 0 executing, 0 finished, 9 failed\n"
        "worker web1.7 (web1 unknown 7) busy sms, em*. jobs: 10 finished, 2 failed"
    )


def test_raw_of_chosen_queues_leaves_out_the_failed_one() -> None:
    assert render.raw(snapshot(SMS, workers=None, chosen=True)) == "queue sms 6, 4 executing, 5 finished, 0 failed"
    assert render.raw(snapshot(SMS, chosen=True), by_queue=True).splitlines()[1] == "sms: web1.7 (busy)".replace(
        "busy", styled("busy", "red")
    )


def test_the_document() -> None:
    document = render.document(snapshot(GATED, PN, totals=Totals(1, 2, True)))
    assert {name: value for name, value in document.items() if name not in ("queues", "workers")} == {
        "schema": 1,
        "at": "2026-01-31T12:00:00.000000Z",
        "suspended": True,
        "failed": 1,
        "scheduled": 2,
        "dropped": {},
        "callback_errors": None,
        "keyless": [],
        "broken": [],
        "blocked": [],
        "stuck": [],
        "verdict": None,
        "held": 0,
        "sinks": None,
        "callbacks": None,
        "schedulers": [],
        "cron": {"entries": 0, "paused": 0, "errors": 0},
    }
    assert document["queues"][0] == {
        "name": "sms",
        "queue_length": 6,
        "queued_count": 6,
        "blocked_count": 0,
        "active_count": 4,
        "by_priority": {"high": 3, "moderate": 2, "low": 1},
        "inbox": 0,
        "oldest_enqueued_at": "2026-01-31T11:58:30.000000Z",
        "oldest_age": 90.0,
        "oldest_by_priority": {"high": None, "moderate": None, "low": None},
        "finished_count": 5,
        "deferred_count": 6,
        "canceled_count": 7,
        "stopped_count": 0,
        "rq_count": None,
        "paused": False,
        "pause": None,
        "max_concurrent": 20,
        "rate": "10/s",
        "burst": 3,
        "rate_limited": True,
        "held_back_until": "2026-01-31T09:30:00.000000Z",
        "max_wait": 300.0,
        "max_queue_length": None,
        "queue_timeout": None,
        "problem": None,
        "last_updated": "2026-01-31T12:00:00.000000Z",
        "per_minute": None,
    }
    assert document["queues"][1]["oldest_enqueued_at"] is document["queues"][1]["oldest_age"] is None
    assert document["workers"] == [
        {
            "name": "web1.7",
            "state": "busy",
            "alive": True,
            "quiet": False,
            "throttled": None,
            "unloaded": None,
            "queues": ["sms", "em*"],
            "current_job": "j1",
            "jobs": [],
            "hostname": "web1",
            "pid": 7,
            "birth": "2026-01-31T11:00:00.000000Z",
            "last_heartbeat": "2026-01-31T11:59:57.000000Z",
            "heartbeat_age": 3.0,
            "successful_jobs": 10,
            "failed_jobs": 2,
            "working_seconds": 1.5,
            "version": None,
            "memory": None,
        }
    ]


def test_a_clock_behind_the_servers_makes_no_negative_age() -> None:
    ahead = replace(SMS, oldest=AT + timedelta(seconds=5))
    assert render.document(snapshot(ahead))["queues"][0]["oldest_age"] == 0.0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-1, "0.0 s"),
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (12, "12 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7200, "2 h"),
        (3 * 86400, "3 d"),
    ],
)
def test_seconds(value: float, text: str) -> None:
    assert seconds(value) == text


def test_columns_are_as_wide_as_what_is_seen() -> None:
    lines = table(("A", "B"), [(styled("x", fg="red"), "1"), ("yyy", "22")], right=(1,))
    assert [click.unstyle(line) for line in lines] == ["A     B", "x     1", "yyy  22"]


# -- the live screen


def test_a_screen_draws_over_the_last_one_without_clearing_it_first() -> None:
    drawn = screen("a\nb", "status", height=24)
    assert drawn == "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[K\nstatus\x1b[K\x1b[J"
    assert "\x1b[2J" not in drawn


@pytest.mark.parametrize("height", [5, 10, 24])
def test_a_screen_never_scrolls_and_keeps_the_summary(height: int) -> None:
    drawn = click.unstyle(screen("\n".join(map(str, range(100))), "status", height))
    lines = drawn.split("\n")
    assert len(lines) <= height
    assert lines[-3] == "99"
    assert lines[-4] == f"... {100 - height + 3} more lines"


def test_prose_folds_at_words_where_there_is_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "held  in email for a worker that has a_module_with_a_name_longer_than_the_line"
    assert folded(text, 2) == [text]
    monkeypatch.setattr("fusion.cli.tables.room", lambda: 20)
    lines = ["held  in email for a", "  worker that has", "  a_module_with_a_name_longer_than_the_line"]
    assert folded(text, 2) == lines
    assert folded(text, 2, taken=6)[0] == "held  in email"
