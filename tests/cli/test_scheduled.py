"""`enqueue --schedule-*`, `scheduled`, `cancel` and `reschedule` on a real Redis."""

from __future__ import annotations

import datetime as dt
import json
import re

import pytest
import redis

from fusion import Job, Queue, ScheduledJobRegistry
from fusion.store.layout.records import Commit
from fusion.store.write.broker import Broker
from tests.cli.conftest import Hands, Invoke, run_worker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import everything

SMS = "tasks.sms.sendSMS"
SCHEDULED = "rq:scheduler:scheduled_jobs"
HOUR = dt.timedelta(hours=1)
#: In a zone of its own: whoever compares local times sees it.
NEW_YEAR = dt.datetime(2040, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30)))


def left(conn: redis.Redis, job_id: str) -> float:
    """Seconds until it is due."""
    score = conn.zscore(SCHEDULED, job_id)
    assert score is not None
    seconds, micros = conn.time()
    return float(score) - seconds - micros / 1e6


# -- enqueue


def test_enqueue_for_later(invoke: Invoke, conn: redis.Redis) -> None:
    said = invoke("enqueue", SMS, "a", "--schedule-in", "5m", "--job-id", "in", "-q", "sms").stdout
    shown = r"due \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4} \(in 5 min\)"
    assert re.fullmatch(rf"Enqueued tasks\.sms\.sendSMS\('a'\) with job-id 'in', {shown}\.\n", said)
    assert 290 < left(conn, "in") <= 300
    invoke("enqueue", SMS, "--schedule-at", NEW_YEAR.isoformat(), "--job-id", "at", "--ttl", "60", "--at-front", "--quiet")
    assert Job.fetch("at", conn).scheduled_at() == NEW_YEAR
    assert check_conservation(conn, ["in", "at"]) == {"in": "scheduled", "at": "scheduled"}


def test_enqueue_for_a_time_that_is_over_says_nothing_of_it(invoke: Invoke, conn: redis.Redis) -> None:
    for flags in (("--schedule-at", "2020-01-01T00:00Z"), ("--schedule-in", "0")):
        assert re.fullmatch(r"Enqueued \S+ with job-id '[^']+'\.\n", invoke("enqueue", SMS, *flags).stdout)
    assert len(Queue("default", conn)) == 2


def test_local_time_is_shown_with_its_offset(conn: redis.Redis) -> None:
    ended = run_worker("enqueue", SMS, "--schedule-at", "2040-07-01T12:00Z", "--job-id", "x", TZ="Europe/Berlin")
    assert re.search(r", due 2040-07-01 14:00:00 \+0200 \(in \d+ d\)\.\n\Z", ended.stdout), ended
    (line,) = [line for line in run_worker("scheduled", TZ="Asia/Kolkata").stdout.splitlines() if SMS in line]
    assert line.startswith("2040-07-01 17:30:00 +0530  in ")


def test_a_dry_run_prints_the_time_and_needs_no_redis(invoke: Invoke) -> None:
    said = json.loads(invoke("enqueue", SMS, "--schedule-at", NEW_YEAR.isoformat(), "--dry-run").stdout)
    assert (said["due"], "delay" in said) == ("2039-12-31T18:30:00.000000Z", False)
    said = json.loads(invoke("enqueue", SMS, "--schedule-in", "5m", "--dry-run").stdout)
    assert (said["delay"], "due" in said) == (300, False)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--schedule-at", "2040-01-01T09:00"], "has no time zone; add Z for UTC or an offset like +02:00: 2040-01-01T09:00:00Z"),
        (["--schedule-at", "tomorrow"], "'tomorrow' is not a time; use ISO 8601 with a zone"),
        (
            ["--schedule-at", "9999-12-31T00:00Z"],
            "--schedule-at: 9999-12-31 00:00:00+00:00 is over 1000000000 s (31 years) ahead",
        ),
        (["--schedule-in", "soon"], "'--schedule-in': 'soon': use seconds"),
        (["--schedule-in", "-5"], "--schedule-in: -5.0 must be from 0"),
        (["--schedule-in", "nan"], "use seconds, or a text like"),
        (["--schedule-in", "5m", "--schedule-at", "2040-01-01T09:00Z"], "give --schedule-at or --schedule-in, not both"),
    ],
)
def test_a_wrong_time_is_a_usage_error(invoke: Invoke, conn: redis.Redis, flags: list[str], message: str) -> None:
    said = " ".join(invoke("enqueue", SMS, *flags, code=2).stderr.split())
    assert message in said
    assert conn.dbsize() == 0


# -- scheduled


@pytest.fixture
def waiting(conn: redis.Redis, hands: Hands) -> Broker:
    """A job for each reason to wait, due in the order of their names."""
    broker = Broker(conn)
    worker = hands("sms", name="w.1").register()

    def end(job_id: str, kind: str, times: int = 1, reason: str = "", **fields: object) -> None:
        Queue("sms", conn).enqueue(SMS, job_id=job_id)
        for _ in range(times):
            (job,) = worker.turn(slots=1)
            worker.turn(Commit(kind, job.id, job.execution_id, elapsed=0.001, delay=100.0, reason=reason, fields=fields))

    Queue("email", conn).enqueue_in(90, "tasks.email.sendEmail", job_id="a-later", description="A letter")
    end("b-retried", "retry", reason="ConnectionError: refused", retryCount=8)
    end("c-held", "held", reason="this worker does not know tasks.sms")
    end("d-lost", "lost", times=2, reason="its worker vanished")
    # Held after a retry: the history's last line is of the run before.
    end("e-both", "retry", reason="ConnectionError: refused", retryCount=8)
    conn.zadd(SCHEDULED, {"e-both": 1})
    broker.promote()
    (job,) = worker.turn(slots=1)
    worker.turn(Commit("held", job.id, job.execution_id, delay=100.0, reason="not here"))
    for n, job_id in enumerate(("b-retried", "c-held", "d-lost", "e-both")):
        seconds, _ = conn.time()
        conn.zadd(SCHEDULED, {job_id: seconds + 7200 + n})
    return broker


def test_scheduled_lists_jobs_with_their_reasons(invoke: Invoke, conn: redis.Redis, waiting: Broker) -> None:
    conn.zadd(SCHEDULED, {"a-gone": 1, "a-broken": 2})
    conn.set("rq:job:a-broken", "no hash")
    lines = invoke("scheduled").stdout.splitlines()
    assert lines[0].split() == ["DUE", "DESCRIPTION", "ID", "QUEUE", "WHY"]
    cells = [re.split(r"  +", line) for line in lines[1:8]]
    assert [row[1] for row in cells[:2]] == ["due", "due"]
    assert re.fullmatch(r"in \d\d s", cells[2][1])
    assert [row[2:] for row in cells] == [
        ["-", "a-gone", "-", "a stale entry: there is no such job"],
        ["-", "a-broken", "-", "a stale entry: the job is broken"],
        ["A letter", "a-later", "email", "enqueued for then"],
        [SMS, "b-retried", "sms", "retry 1: ConnectionError: refused"],
        [SMS, "c-held", "sms", "held back: this worker does not know tasks.sms"],
        [SMS, "d-lost", "sms", "lost 2 times: its worker vanished"],
        [SMS, "e-both", "sms", "held back: not here"],
    ]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}", row[0]) for row in cells)
    assert lines[8:] == ["", "7 scheduled, of all queues, shown: 1 to 7"]


def test_pages(invoke: Invoke, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue_many([Queue.prepare_data(SMS, job_id=f"j{n:02}", enqueue_in=3600 + n) for n in range(45)])
    first = invoke("scheduled").stdout
    assert re.findall(r"j\d\d", first) == [f"j{n:02}" for n in range(20)]
    assert first.endswith("45 scheduled, of all queues, shown: 1 to 20\nMore: run_worker.py scheduled --offset 20\n")
    last = invoke("scheduled", "--offset", "40", "--limit", "5").stdout
    assert re.findall(r"j\d\d", last) == [f"j{n:02}" for n in range(40, 45)]
    assert last.endswith("45 scheduled, of all queues, shown: 41 to 45\n")
    assert "More: run_worker.py scheduled --offset 7 --limit 7\n" in invoke("scheduled", "--limit", "7").stdout
    assert invoke("scheduled", "--offset", "45").stdout == "45 scheduled, of all queues, none from 45 on\n"


def test_scheduled_as_json(invoke: Invoke, conn: redis.Redis, waiting: Broker) -> None:
    document = json.loads(invoke("scheduled", "--json", "--limit", "2").stdout)
    later, retried = document.pop("jobs")
    assert document.pop("at").endswith("Z")
    assert document == {"schema": 1, "total": 5, "offset": 0}
    assert 60 < later.pop("due_in") <= 90
    due = ScheduledJobRegistry(conn).get_scheduled_time("a-later")
    assert dt.datetime.fromisoformat(later.pop("due_at")) == due
    about = {"function": "tasks.email.sendEmail", "description": "A letter"}
    assert later == {"id": "a-later", "queue": "email", "why": "enqueued for then", "reason": None, **about}
    assert (retried["id"], retried["why"], retried["reason"]) == ("b-retried", "retry 1", "ConnectionError: refused")


def test_nothing_is_scheduled(invoke: Invoke, conn: redis.Redis) -> None:
    assert invoke("scheduled").stdout == "No scheduled jobs\n"
    assert json.loads(invoke("scheduled", "--json").stdout)["jobs"] == []
    assert run_worker("scheduled").stdout == "No scheduled jobs\n"


def test_looking_changes_nothing(invoke: Invoke, conn: redis.Redis, waiting: Broker) -> None:
    before = everything(conn, clocks=True)
    invoke("scheduled"), invoke("scheduled", "--json")
    assert everything(conn, clocks=True) == before


# -- cancel


def test_cancel(invoke: Invoke, conn: redis.Redis, waiting: Broker, hands: Hands) -> None:
    queued = Queue("pn", conn).enqueue(SMS, job_id="queued")
    assert invoke("cancel", "a-later", "b-retried", "queued", "queued").stdout == "3 jobs canceled\n"
    assert {str(Job.fetch(job_id, conn).get_status()) for job_id in ("a-later", "b-retried", queued.id)} == {"canceled"}
    assert invoke("cancel", "a-later").stdout == "1 jobs canceled\n", "a second time is no error"
    assert ScheduledJobRegistry(conn).get_job_ids() == ["c-held", "d-lost", "e-both"]
    check_conservation(conn, ["a-later", "b-retried", "c-held", "d-lost", "e-both", "queued"])


def test_cancel_does_what_it_can_and_names_the_rest(invoke: Invoke, conn: redis.Redis, hands: Hands) -> None:
    worker = hands("sms", name="w.1").register()
    done = Queue("sms", conn).enqueue(SMS, job_id="done")
    worker.end("finished", worker.turn(slots=1))
    Queue("sms", conn).enqueue(SMS, job_id="running")
    (running,) = worker.turn(slots=1)
    Queue("sms", conn).enqueue_in(60, SMS, job_id="later")
    result = invoke("cancel", done.id, "running", "nobody", "a b", "later", code=1)
    assert (
        result.stdout == "running is running: it is canceled when this run ends, unless that finishes or fails\n"
        "1 jobs canceled, 1 still running\n"
    )
    assert sorted(result.stderr.splitlines()) == [
        "Unable to cancel a b: no such job; job id 'a b': use 1 to 128 of the characters A-Z a-z 0-9 _ - [FUS-114]",
        "Unable to cancel done: it has ended (finished)",
        "Unable to cancel nobody: no such job",
    ]
    document = json.loads(invoke("cancel", "running", "nobody", "--json", code=1).stdout)
    assert document == {"schema": 1, "canceled": 0, "running": ["running"], "refused": {"nobody": "no such job"}}
    assert "0 jobs canceled, 1 still running" in invoke("cancel", "running", code=3).stdout
    assert json.loads(invoke("cancel", "running", "--json", code=3).stdout)["running"] == ["running"]
    worker.end("retry", [running])
    assert Job.fetch("running", conn).get_status() == "canceled"


# -- reschedule


@pytest.mark.parametrize(("when", "seconds"), [("+5m", 300), ("5m", 300), ("90", 90), ("+2h", 7200), ("0.5h", 1800)])
def test_reschedule_by_a_delay(invoke: Invoke, conn: redis.Redis, when: str, seconds: float) -> None:
    Queue("sms", conn).enqueue_in(HOUR, SMS, job_id="x")
    said = invoke("reschedule", "x", when).stdout
    assert re.fullmatch(r"Rescheduled x: due \S+ \S+ [+-]\d{4} \(in \S+ \S+\)\n", said)
    assert seconds - 20 < left(conn, "x") <= seconds + 0.001


def test_reschedule_to_a_time(invoke: Invoke, conn: redis.Redis, waiting: Broker) -> None:
    assert invoke("reschedule", "b-retried", NEW_YEAR.isoformat()).exit_code == 0
    assert Job.fetch("b-retried", conn).scheduled_at() == NEW_YEAR, "that of a retry too"
    document = json.loads(invoke("reschedule", "a-later", "2040-01-01T00:00Z", "--json").stdout)
    assert document == {"schema": 1, "id": "a-later", "due_at": "2040-01-01T00:00:00.000000Z"}
    assert invoke("reschedule", "a-later", "2020-01-01T00:00Z").stdout == "Rescheduled a-later: due now\n"
    assert waiting.promote()[0] == 1
    assert Job.fetch("a-later", conn).get_status() == "queued"


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["x", "tomorrow"], 2, "'tomorrow' is not a time; use ISO 8601 with a zone, like 2030-01-31T09:00+01:00"),
        (["x", "tomorrow"], 2, "or a time from now like +5m"),
        (["x", "2040-01-01T00:00"], 2, "has no time zone; add Z for UTC"),
        (["x", "9999-01-01T00:00Z"], 2, "(31 years) ahead"),
        (["x", "+1e10"], 2, "must be from 0 to 1000000000"),
        (["x", "nan"], 2, "'nan' is not a time"),
        (["x"], 2, "Missing argument"),
        (["a b", "5m"], 2, "use 1 to 128 of the characters"),
        (["nobody", "5m"], 1, "Error: no job 'nobody'"),
        (["queued", "5m"], 1, "Error: job queued is queued; only a scheduled one"),
    ],
)
def test_reschedule_refuses_wrong_arguments(invoke: Invoke, conn: redis.Redis, args: list[str], code: int, message: str) -> None:
    Queue("sms", conn).enqueue_at(NEW_YEAR, SMS, job_id="x")
    Queue("sms", conn).enqueue(SMS, job_id="queued")
    assert message in " ".join(invoke("reschedule", *args, code=code).stderr.split())
    assert Job.fetch("x", conn).scheduled_at() == NEW_YEAR


# -- together


@pytest.mark.parametrize("args", [["scheduled"], ["cancel", "x"], ["reschedule", "x", "5m"]], ids=" ".join)
def test_redis_down(invoke: Invoke, args: list[str]) -> None:
    result = invoke(*args, "-u", "redis://127.0.0.1:1/3", code=1)
    assert result.stderr.startswith("Error: Redis at redis://127.0.0.1:1")
    assert (result.stderr.count("\n"), result.stdout) == (1, "")


@pytest.mark.long
def test_as_real_processes(conn: redis.Redis) -> None:
    assert run_worker("enqueue", SMS, "--schedule-in", "1h", "--job-id", "x").returncode == 0
    assert run_worker("reschedule", "x", "+2h").returncode == 0
    assert 7100 < left(conn, "x") <= 7200.001
    assert "enqueued for then" in run_worker("scheduled").stdout
    assert run_worker("cancel", "x").stdout == "1 jobs canceled\n"
    assert run_worker("cancel", "y").returncode == 1
