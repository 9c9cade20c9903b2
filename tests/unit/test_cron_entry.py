"""Entries: what happens to ticks by policy, what is stored of them, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from fusion.cron.entry import MAKE_UP, Entry, revision
from fusion.cron.plan import Plan
from fusion.exceptions import PayloadTooLarge, SerializationError
from fusion.retry import Retry
from fusion.settings import Settings
from fusion.store.layout.records import Tick
from tests.jobs import basic

TASK = "tasks.sms.sendSMS"
#: A tick of every plan here.
T = 1_800_000_000
MINUTE = Plan.interval(60)


def made(plan: Plan = MINUTE, **options: Any) -> Entry:
    return Entry.make(TASK, plan, Settings(), **options)


def at(tick: Tick) -> list[int]:
    """The ticks that run, in minutes from T."""
    return [(moment - T) // 60 for moment, _ in tick.runs]


# -- which ticks run


@pytest.mark.parametrize(
    ("options", "since", "late", "runs", "missed"),
    [
        ({}, 1, 0, [0], 0),
        ({}, 1, 59.9, [0], 0),
        ({}, 5, 0, [0], 4),
        ({}, 5000, 0, [0], 999),  # counted no further than a thousand
        ({"misfire": "latest"}, 5, 59, [0], 4),
        ({"misfire_grace": 30}, 5, 30, [0], 4),
        ({"misfire_grace": 30}, 5, 31, [], 5),
        ({"misfire_grace": 1}, 1, 1, [0], 0),
        ({"misfire_grace": 1}, 1, 1.1, [], 1),
        ({"misfire": "all"}, 1, 0, [0], 0),
        ({"misfire": "all"}, 4, 59, [-3, -2, -1, 0], 0),
        ({"misfire": "all"}, 150, 0, list(range(-99, 1)), 50),
        ({"misfire": "all", "misfire_grace": "2m"}, 9, 0, [-2, -1, 0], 6),
        ({"misfire": "all", "misfire_grace": "2m"}, 9, 1, [-1, 0], 7),
        ({"misfire": "skip"}, 1, 10, [0], 0),
        ({"misfire": "skip"}, 1, 10.1, [], 1),
        ({"misfire": "skip"}, 5, 3, [0], 4),
        ({"misfire": "skip"}, 5, 30, [], 5),
        ({"misfire": "skip", "misfire_grace": 40}, 5, 30, [0], 4),
    ],
)
def test_which_of_the_due_ticks_run(options: dict[str, Any], since: int, late: float, runs: list[int], missed: int) -> None:
    """`since` ticks are due, the newest of them `late` seconds ago."""
    tick = made(**options).decide(T - 60 * since, T + late)
    assert (at(tick), tick.missed) == (runs, missed)
    assert (tick.upto, tick.next) == (T, T + 60)


@pytest.mark.parametrize("grace", [0, 0.001, 0.5])
def test_a_grace_that_no_tick_could_meet_counts_as_a_second_where_it_is_stored(grace: float) -> None:
    stored = stored_with({"misfire_grace": grace})
    assert at(stored.decide(T - 60, T + 1)) == [0]
    assert stored.decide(T - 60, T + 1.1).missed == 1
    (fault,) = stored.faults()
    assert fault.startswith(f"misfire_grace={grace}: every tick is a little late")
    assert fault.endswith("; until then it counts as 1")
    assert json.loads(stored.spec())["misfire_grace"] == grace, "the same revision as for those that stored it"
    assert made(misfire_grace=1).faults() == made().faults() == []


def stored_with(changes: dict[str, Any]) -> Entry:
    """As an earlier version stored it."""
    return Entry.of("e", MINUTE.to_json(), json.dumps(json.loads(made().spec()) | changes))


@pytest.mark.parametrize("misfire", ["latest", "all", "skip"])
def test_no_tick_is_due(misfire: str) -> None:
    entry = made(misfire=misfire)
    assert entry.decide(T, T + 59.9) == Tick(T, (), T + 60, 0)
    assert entry.decide(T + 30, T + 59.9) == Tick(T + 30, (), T + 60, 0)


def test_a_tick_is_never_early() -> None:
    assert made().decide(T - 60, T - 0.001) == Tick(T - 60, (), T, 0)


def test_a_lost_mark_begins_anew_and_runs_nothing() -> None:
    assert made(misfire="all").decide(None, T + 30.7) == Tick(T + 30, (), T + 60, 0)


def test_a_mark_in_the_future_is_waited_for() -> None:
    assert made(misfire="all").decide(T + 7200, T) == Tick(T + 7200, (), T + 7260, 0)


def test_an_entry_that_ends_has_no_next_tick() -> None:
    entry = made(replace(MINUTE, end=T + 60), misfire="all")
    assert entry.decide(T - 60, T) == Tick(T, ((T, 0.0),), T + 60, 0)
    assert entry.decide(T, T + 600) == Tick(T + 60, ((T + 60, 0.0),), None, 0)
    assert entry.decide(T + 60, T + 660) == Tick(T + 60, (), None, 0)


def test_every_tick_is_either_run_or_missed() -> None:
    for misfire in ("latest", "all", "skip"):
        for since in (0, 1, 2, MAKE_UP - 1, MAKE_UP, MAKE_UP + 1, 500):
            tick = made(misfire=misfire).decide(T - 60 * since, T + 20)
            assert len(tick.runs) + tick.missed == since


# -- jitter


def test_jitter_puts_each_tick_off_by_its_own_time_within_bounds() -> None:
    entry = made(jitter="30s", misfire="all")
    delays = [delay for _, delay in entry.decide(T - 6000, T).runs]
    assert len(delays) == len(set(delays)) == 100
    assert all(0 <= delay <= 30 for delay in delays)
    assert min(delays) < 5
    assert max(delays) > 25


def test_jitter_is_the_same_for_every_scheduler() -> None:
    code = (
        "from fusion.cron.entry import Entry; from fusion.cron.plan import Plan; from fusion.settings import Settings\n"
        f"entry = Entry.make({TASK!r}, Plan.interval(60), Settings(), jitter=30, misfire='all')\n"
        f"print([delay for _, delay in entry.decide({T - 300}, {T}).runs])"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    here = [delay for _, delay in made(jitter=30, misfire="all").decide(T - 300, T).runs]
    assert [json.loads(one) for one in said] == [here, here]


def test_jitter_longer_than_the_time_between_two_ticks_is_remarked() -> None:
    (remark,) = made(jitter="2m").remarks(T)
    assert remark == "jitter=120 is longer than the 60 s between two ticks: the later one may start first"
    assert made(jitter=60).remarks(T) == []
    daily = Plan.cron("0 9 * * *")
    assert made(daily, jitter="1d").remarks(T) == []
    assert "86400 s" in made(daily, jitter="2d").remarks(T)[0]
    assert made(Plan.cron("0 0 1 * *"), jitter="2d").remarks(T) == []
    assert made(replace(daily, end=T), jitter="2d").remarks(T) == [], "it has ended"


def test_jitter_differs_between_entries() -> None:
    one, other = (made(id=name, jitter=30).decide(T - 60, T).runs for name in ("one", "other"))
    assert one[0][0] == other[0][0]
    assert one[0][1] != other[0][1]


# -- as stored

FULL: dict[str, Any] = {
    "id": "report",
    "queue": "reports",
    "args": ({"days": 30}, "x"),
    "kwargs": {"to": "a@example.com"},
    "priority": 2,
    "misfire": "all",
    "misfire_grace": "5m",
    "overlap": "skip",
    "jitter": 1.5,
    "job_timeout": "10m",
    "ttl": 60,
    "result_ttl": 0,
    "failure_ttl": "1d",
    "retry": Retry(max=3, backoff=2),
    "on_success": basic.noop,
    "on_failure": "tests.jobs.basic.noop",
    "meta": {"by": "cron"},
    "description": "the \u00fcbliche report",
    "log_tag": "REPORT_DAILY",
    "on_lost": "fail",
}


@pytest.mark.parametrize("options", [{}, FULL])
@pytest.mark.parametrize("plan", [MINUTE, Plan.cron("30 2 * * 1-5", "Europe/Berlin"), replace(MINUTE, start=T, end=T + 9)])
def test_what_is_stored_is_read_back_as_it_was(plan: Plan, options: dict[str, Any]) -> None:
    entry = made(plan, **options)
    found = Entry.of(entry.id, plan.to_json(), entry.spec())
    assert found.spec() == entry.spec()
    assert found.plan == plan
    for name in ("id", "func_name", "queue", "misfire", "misfire_grace", "overlap", "jitter"):
        assert getattr(found, name) == getattr(entry, name)
    assert (found.job.priority, found.job.ttl) == (entry.job.priority, entry.job.ttl)
    assert found.decide(T - 600, T) == entry.decide(T - 600, T)


def test_the_job_of_a_tick_is_that_of_an_enqueue() -> None:
    entry = made(**FULL)
    found = Entry.of("report", MINUTE.to_json(), entry.spec()).job
    assert json.loads(found.fields["data"]) == [TASK, None, [{"days": 30}, "x"], {"to": "a@example.com"}]
    kept = {"timeout": 600, "ttl": 60, "result_ttl": 0, "failure_ttl": 86400, "on_lost": "fail", "log_tag": "REPORT_DAILY"}
    assert {name: found.fields[name] for name in kept} == kept
    assert (found.priority, found.ttl, found.front) == (2, 60, False)


def test_the_same_entry_is_the_same_text() -> None:
    assert made(**FULL).spec() == made(**dict(reversed(FULL.items()))).spec()
    one, other = made().spec(), made(priority=2).spec()
    assert len({revision(MINUTE.to_json(), spec) for spec in (one, made().spec(), other)}) == 2
    assert len(revision(MINUTE.to_json(), one)) == 16


def test_the_name_of_the_function_is_the_id_unless_there_is_one() -> None:
    assert made().id == "tasks-sms-sendSMS"
    assert Entry.make(basic.noop, MINUTE, Settings()).id == "tests-jobs-basic-noop"
    assert made(id="x").id == "x"


def test_stored_entries_are_json_whatever_the_setting_says() -> None:
    entry = Entry.make(TASK, MINUTE, replace(Settings(), serializer="pickle", allow_pickle=True), args=(1,))
    assert json.loads(json.loads(entry.spec())["fields"]["data"]) == [TASK, None, [1], {}]


def spec_without(*names: str) -> str:
    return json.dumps({name: value for name, value in json.loads(made().spec()).items() if name not in names})


@pytest.mark.parametrize(
    "spec", ["", "{", "[]", "null", "5", "{}", spec_without("format"), spec_without("func"), spec_without("fields", "jitter")]
)
def test_a_damaged_entry_says_so(spec: str) -> None:
    with pytest.raises(ValueError, match=r"is damaged .*; declare it again"):
        Entry.of("x", MINUTE.to_json(), spec)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ("", "is not a stored plan; declare the entry again"),
        ("[]", "is not a stored plan"),
        ("{}", "or declare the entry again"),
        ('{"every": 60, "calendar": "moon"}', "update Fusion here, or declare the entry again"),
        ('{"every": 0}', "use whole seconds"),
        ('{"cron": "61 * * * *", "timezone": "UTC"}', "'61' is not a valid minute"),
    ],
)
def test_a_damaged_or_newer_plan_says_so(plan: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Entry.of("x", plan, made().spec())


def test_an_entry_of_a_newer_version_asks_for_that() -> None:
    newer = json.dumps({**json.loads(made().spec()), "format": 2, "new": True})
    with pytest.raises(ValueError, match="has format 2; this scheduler reads 1: upgrade it"):
        Entry.of("x", MINUTE.to_json(), newer)


# -- what is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"misfire": "never"}, "misfire='never': use 'latest', 'all' or 'skip'"),
        ({"misfire": None}, "misfire=None: use"),
        ({"overlap": "wait"}, "overlap='wait': use 'allow'"),
        ({"overlap": False}, "overlap=False: use"),
        ({"misfire_grace": -1}, "misfire_grace=-1: use a duration of 0 or more"),
        ({"misfire_grace": 0}, "misfire_grace=0: every tick is a little late.*use 1 second or more, or leave it out"),
        ({"misfire_grace": "0s"}, "misfire_grace='0s': every tick is a little late"),
        ({"misfire_grace": 0.999}, "misfire_grace=0.999: every tick is a little late"),
        ({"misfire_grace": 1e-9, "misfire": "skip"}, "with misfire='skip' 10 s"),
        ({"misfire_grace": "soon"}, "'soon' is not a duration"),
        ({"jitter": -0.1}, "jitter=-0.1: use a duration of 0 or more"),
        ({"jitter": float("nan")}, "is not a duration"),
        ({"jitter": 2e9}, "jitter=2000000000.0: use a duration"),
        ({"job_id": "mine"}, "job_id= is not an option of a cron entry; use one of args, "),
        ({"at_front": True}, "at_front= is not an option of a cron entry"),
        ({"depends_on": "x"}, "depends_on= is not an option of a cron entry"),
        ({"timezone": "UTC"}, "timezone= is not an option of a cron entry"),
        ({"qeue": "sms"}, "qeue= is not an option of a cron entry; did you mean queue?"),
        ({"colour": "sms"}, "colour= is not an option of a cron entry; use one of args, .* queue, "),
        ({"queue": "failed"}, "queue name 'failed' is reserved"),
        ({"queue": "_x"}, "is reserved"),
        ({"queue": "a b"}, "queue name 'a b': use 1 to 128"),
        ({"id": "a b"}, "cron entry id 'a b': use 1 to 80 of the characters"),
        ({"id": "a.b"}, "cron entry id 'a.b'"),
        ({"id": ""}, "cron entry id ''"),
        ({"id": "x" * 81}, "cron entry id 'xxx"),
        ({"priority": 256}, "priority"),
        ({"ttl": 0}, "ttl=0: use a duration over 0"),
        ({"job_timeout": -2}, "job_timeout=-2"),
        ({"on_lost": "ignore"}, "on_lost='ignore': use"),
        ({"retry": 3}, r"retry=3: use Retry\(max="),
        ({"meta": {"a": object()}}, "meta"),
        ({"args": (object(),)}, "object"),
        ({"kwargs": {"f": basic.noop}}, "'f'|noop"),
    ],
)
def test_options_that_no_tick_could_run_are_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, SerializationError), match=message):
        made(**options)


def test_arguments_that_are_too_large_are_refused() -> None:
    with pytest.raises(PayloadTooLarge):
        made(args=("x" * 2_000_000,))


@pytest.mark.parametrize(("func", "message"), [(lambda: None, "a lambda has no name"), ("", "the task's name is empty")])
def test_a_function_that_no_worker_can_import_is_refused(func: Any, message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        Entry.make(func, MINUTE, Settings())


def test_an_id_of_eighty_characters_leaves_room_for_the_ticks() -> None:
    assert len(f"cron-{made(id='x' * 80).id}-20261120T090000Z") <= 128
