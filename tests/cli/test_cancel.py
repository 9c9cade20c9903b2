"""`cancel` by what jobs have in common, on a real Redis. By ids: tests/cli/test_scheduled.py."""

from __future__ import annotations

import json

import pytest
import redis

from fusion import Job, Queue
from tests.cli.conftest import Hands, Invoke
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import everything

SMS, EMAIL = "tasks.sms.sendSMS", "tasks.email.sendEmail"
#: By id: queue, and how they were enqueued.
JOBS = {
    "run-1": ("sms", SMS, {"concurrency_key": "u1", "max_concurrent": 1}),
    "over-1": ("sms", SMS, {"concurrency_key": "u1", "max_concurrent": 1}),
    "over-2": ("email", EMAIL, {"concurrency_key": "u1", "max_concurrent": 1, "fair_key": "t"}),
    "sms-1": ("sms", EMAIL, {"fair_key": "t"}),
    "sms-2": ("sms", SMS, {"priority": "high"}),
    "later": ("sms", SMS, {"enqueue_in": 3600, "fair_key": "t"}),
    "email-1": ("email", EMAIL, {}),
}


@pytest.fixture
def jobs(conn: redis.Redis, hands: Hands) -> list[str]:
    """Of `JOBS` run-1 runs; over-1 and over-2 are blocked by its key."""
    for job_id, (queue, func, options) in JOBS.items():
        Queue(queue, conn).enqueue(func, job_id=job_id, **options)
        if job_id == "run-1":
            assert [job.id for job in hands("sms", name="w.1").register().turn(slots=1)] == ["run-1"]
    states = {"run-1": "started", "over-1": "blocked", "over-2": "blocked", "later": "scheduled"}
    assert check_conservation(conn, JOBS) == {job_id: states.get(job_id, "queued") for job_id in JOBS}
    return [*JOBS]


@pytest.mark.parametrize(
    ("flags", "meant"),
    [
        ("--queue sms", "run-1 over-1 sms-1 sms-2 later"),
        ("--queue *m*", " ".join(JOBS)),
        ("--key u1", "run-1 over-1 over-2"),
        ("--key u1 --queue email", "over-2"),
        ("--fair-key t", "over-2 sms-1 later"),
        (f"--function {EMAIL}", "over-2 sms-1 email-1"),
        ("--function tasks.sms.* --queue sms", "run-1 over-1 sms-2 later"),
        ("--newer-than 1h", " ".join(JOBS)),
        ("--older-than 1h", ""),
        ("--key u", ""),
        ("--queue nobody", ""),
    ],
)
def test_which_are_meant(invoke: Invoke, conn: redis.Redis, jobs: list[str], flags: str, meant: str) -> None:
    chosen = set(meant.split())
    before = everything(conn)
    document = json.loads(invoke("cancel", *flags.split(), "--dry-run", "--json").stdout)
    assert everything(conn) == before
    assert {job["id"] for job in document["jobs"]} == chosen
    running = [job_id for job_id in ("run-1",) if job_id in chosen]
    assert (document["canceled"], document["running"], document["dry_run"]) == (len(chosen) - len(running), running, True)
    document = json.loads(invoke("cancel", *flags.split(), "--json", code=3 if running else 0).stdout)
    assert document == {"schema": 1, "canceled": len(chosen) - len(running), "running": running, "refused": {}}
    states = check_conservation(conn, jobs)
    assert {job_id for job_id, state in states.items() if state == "canceled"} == chosen - set(running)
    assert Job.fetch("run-1", conn).get_status() == "started"


def test_a_running_job_is_canceled_when_its_run_ends(invoke: Invoke, conn: redis.Redis, jobs: list[str]) -> None:
    said = invoke("cancel", "--key", "u1", code=3).stdout.splitlines()
    assert said == [
        "run-1 is running: it is canceled when this run ends, unless that finishes or fails",
        "2 jobs canceled, 1 still running",
    ]
    assert conn.hget("rq:job:run-1", "cancel") == b"1"


def test_a_dry_run_says_how_many_and_which(invoke: Invoke, conn: redis.Redis, jobs: list[str]) -> None:
    said = invoke("cancel", "--key", "u1", "--dry-run").stdout.splitlines()
    assert [line.split() for line in said] == [
        ["ID", "STATE", "QUEUE", "FUNCTION"], ["over-2", "blocked", "email", EMAIL], ["over-1", "blocked", "sms", SMS],
        ["run-1", "started", "sms", SMS], [], "2 jobs would be canceled, 1 are running and would not be tried again".split(),
    ]  # fmt: skip
    Queue("bulk", conn).enqueue_many([Queue.prepare_data(SMS, (n,)) for n in range(250)])
    said = invoke("cancel", "--queue", "bulk", "--dry-run").stdout.splitlines()
    assert said[-3:] == ["... and 230 more (--json lists all)", "", "250 jobs would be canceled"]
    assert invoke("cancel", "--queue", "bulk").stdout == "250 jobs canceled\n"
    assert len(Queue("bulk", conn)) == 0


def test_nobody_is_admitted_for_one_that_goes_as_well(invoke: Invoke, conn: redis.Redis) -> None:
    """Whoever waits is canceled before those that it waits for."""
    for n in (9, 0, 5, 3, 7):
        Queue("sms", conn).enqueue(SMS, job_id=f"j{n}", concurrency_key="u1", max_concurrent=1)
    assert invoke("cancel", "--key", "u1").stdout == "5 jobs canceled\n"
    events = [fields for _, fields in conn.xrange("rq:events")]
    assert [event[b"job_id"] for event in events if event[b"event"] == b"canceled"][-1] == b"j9"
    assert not [event for event in events if event.get(b"reason") == b"admitted"]


def test_cancel_leaves_jobs_of_other_programs_alone(invoke: Invoke, conn: redis.Redis, jobs: list[str]) -> None:
    conn.hset("rq:job:theirs", mapping={"status": "queued", "origin": "sms", "data": "x", "created_at": "2020-01-01T00:00:00Z"})
    conn.zadd("rq:queue:sms", {"theirs": 1, "not there": 1})
    invoke("cancel", "--queue", "sms", code=3)
    assert conn.hget("rq:job:theirs", "status") == b"queued"
    assert set(conn.zrange("rq:queue:sms", 0, -1)) == {b"theirs", b"not there"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "give job ids, or select jobs by --queue"),
        (["x", "--queue", "sms"], "give job ids, or select jobs by --queue"),
        (["x", "--dry-run"], "--dry-run goes with the options that select"),
        (["--queue", "a b"], "queue name 'a b'"),
        (["--older-than", "long"], "'long': use seconds"),
    ],
)
def test_cancel_without_a_choice_is_refused(invoke: Invoke, args: list[str], message: str) -> None:
    assert message in invoke("cancel", *args, code=2).stderr


def test_cancel_names_an_unknown_queue(invoke: Invoke, conn: redis.Redis, jobs: list[str]) -> None:
    result = invoke("cancel", "--queue", "smss")
    assert (result.stdout, result.stderr) == ("0 jobs canceled\n", "no queue smss is known; did you mean sms?\n")
