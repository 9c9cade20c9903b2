"""`failures`, `quarantine`, and `requeue --all` with a choice."""

from __future__ import annotations

import json
import re

import pytest
import redis

from fusion import FailedQueue, Job, Queue
from fusion.store.layout.records import Commit
from fusion.store.scripting.constants import FleetConstants
from fusion.store.write.broker import Broker
from tests.cli.conftest import Hands, Invoke, run_worker
from tests.kit.hands import Hand, put


def test_failures_and_info_report_held_jobs(invoke: Invoke, conn: redis.Redis) -> None:
    """By `failures`, as they are about to fail, and by `info`: how many, of which task, and the flag that mends it."""
    hand = Hand(Broker(conn), "sms")
    for job_id in ("a", "b"):
        put(hand.broker, "sms", job_id)
        why = "fusion.exceptions.TaskNotAllowed: shop.f is not among the tasks; start the worker with --tasks shop"
        hand.tell(hand.take(), "held", reason=why, fields={"task": "shop.f"})
    line = "2 held in sms for a worker that has shop.f: shop.f is not among the tasks; start the worker with --tasks shop"
    assert invoke("failures").stdout == f"No failed jobs\n\nNot failed yet:\n{line}\n"
    (held,) = json.loads(invoke("failures", "--json").stdout)["held"]
    assert (held["queue"], held["task"], held["count"]) == ("sms", "shop.f", 2)
    assert line in invoke("info").stdout.splitlines()
    (blocked,) = json.loads(invoke("info", "--json").stdout)["blocked"]
    assert (blocked["kind"], blocked["queue"], blocked["count"]) == ("held", "sms", 2)
    assert invoke("info", "email").stdout.count("held") == 0


def test_a_code_in_the_reason_of_held_jobs_is_shown_nowhere(invoke: Invoke, conn: redis.Redis) -> None:
    """A module's import may say what it likes, and a task of its own may hold itself back so."""
    why = "fusion.exceptions.TaskNotAllowed: shop.f: ImportError: the gateway says your OTP is 482-913, password=swordfish"
    hand = Hand(Broker(conn), "sms")
    put(hand.broker, "sms", "a", "late")
    hand.tell(hand.take(), "held", reason=why, fields={"task": "shop.f"})
    hand.tell(hand.take(), "later", reason=why, delay=100.0)
    shown = {
        args: invoke(*args).stdout
        for args in (("info",), ("info", "--json"), ("failures",), ("failures", "--json"), ("job", "show", "a"), ("scheduled",))
    }
    shown |= {args: invoke(*args, code=3).stdout for args in (("doctor",), ("doctor", "--json"))}
    shown |= {args: invoke(*args).stdout for args in (("scheduled", "--json"), ("job", "show", "a", "--json"))}
    for args, text in shown.items():
        assert "your OTP is ***-***, password=***" in " ".join(text.split()), args
        # three digits alone: a time's fraction of a second has six
        assert not re.search(r"(?<![\d.])(482|913)(?!\d)|swordfish", text), args


@pytest.fixture
def failed(hands: Hands, conn: redis.Redis) -> list[str]:
    """Nine jobs: two queues, three errors; the first of them long ago."""
    ids = []
    for queue, count in (("sms", 6), ("email", 3)):
        worker = hands(queue, name=f"failing.{queue}").register()
        for n in range(count):
            task = "tasks.sms.sendSMS" if queue == "sms" else "tasks.email.sendEmail"
            ids.append(Queue(queue, conn).enqueue(task, job_id=f"{queue}-{n}").id)
            (job,) = worker.turn(slots=1)
            kind = ("builtins.TimeoutError", "app.BadNumber", "app.Slow")[n % 3]
            fields = {"error_class": kind, "error_frame": f"app.sms:send:{n % 3}"}
            if kind == "app.Slow":
                fields["error_bases"] = "builtins.TimeoutError\nbuiltins.OSError"
            worker.turn(Commit("failed", job.id, job.execution_id, reason=f"{kind}: no", fields=fields))
    conn.hset("rq:job:sms-0", "ended_at", "2026-01-01T00:00:00.000000Z")
    return ids


def test_failures_for_people(invoke: Invoke, failed: list[str]) -> None:
    lines = invoke("failures").stdout.splitlines()
    assert lines[0].split() == ["COUNT", "ERROR", "WHERE", "FIRST", "LAST", "QUEUES", "EXAMPLE", "MESSAGE"]
    assert [line.split()[:3] for line in lines[1:4]] == [
        ["3", "app.BadNumber", "app.sms:send:1"],
        ["3", "app.Slow", "app.sms:send:2"],
        ["3", "TimeoutError", "app.sms:send:0"],
    ]
    assert "email 1, sms 2" in lines[1]
    assert "requeue --all --error CLASS" in lines[-1]
    assert lines[1].split()[-2:] == ["email-1", "no"]


@pytest.mark.parametrize("also_failed", [True, False])
def test_callbacks_that_raised_are_counted(
    invoke: Invoke, conn: redis.Redis, request: pytest.FixtureRequest, also_failed: bool
) -> None:
    if also_failed:
        request.getfixturevalue("failed")
    assert "callback" not in invoke("failures").stdout + invoke("info").stdout
    for document in (json.loads(invoke(command, "--json").stdout) for command in ("failures", "info")):
        assert document["callback_errors"] is None
    hand = Hand(Broker(conn), "sms")
    for job_id in ("a", "b"):
        put(hand.broker, "sms", job_id)
        hand.tell(hand.take(), fields={"callback_error": "on_success: KeyError: 'x'"})
    for command in ("failures", "info"):
        assert "2 callbacks (on_success, on_failure) raised an error, the last one " in (said := invoke(command).stdout)
        assert "of the job b: " in said
        found = json.loads(invoke(command, "--json").stdout)["callback_errors"]
        assert (found["count"], found["job_id"]) == (2, "b")
        assert found["at"].endswith("Z")
    assert Job.fetch("b", conn).callback_error == "on_success: KeyError: 'x'"


def test_failures_show_the_message_masked(invoke: Invoke, failed: list[str], conn: redis.Redis) -> None:
    secret = "app.BadNumber: +4915112345678 at https://u:pw@sms.example.com/send?token=abc, password=hunter2 \x1b[2J\nmore"
    for n in ("sms-1", "sms-4", "email-1"):
        conn.hset(f"rq:job:{n}", "reason", secret)
    said = invoke("failures", "--error", "BadNumber").stdout
    (group,) = json.loads(invoke("failures", "--error", "BadNumber", "--json").stdout)["groups"]
    for text in (said.splitlines()[1], group["message"]):
        assert "sms.example.com" in text
        for part in ("4915112345678", "u:pw", "abc", "hunter2", "\x1b", "BadNumber: "):
            assert part not in text
    assert "\n" not in group["message"]


def test_requeue_all_counts_alike_beside_quarantined_jobs(invoke: Invoke, failed: list[str], conn: redis.Redis) -> None:
    FailedQueue(conn).quarantine(["sms-1", "sms-2"], "bug")
    assert invoke("requeue", "--all", "--dry-run").stdout == (
        "Requeueing 7 jobs from failed queue (dry run: nothing is moved)\n"
        "7 jobs would be requeued; 2 quarantined are left out (--include-quarantined)\n"
    )
    assert invoke("requeue", "--all", "--queue", "sms", "--dry-run").stdout.endswith(
        "4 jobs would be requeued; 2 quarantined are left out (--include-quarantined)\n"
    )
    assert invoke("requeue", "--all", "--include-quarantined", "--dry-run").stdout.endswith("9 jobs would be requeued\n")
    document = json.loads(invoke("requeue", "--all", "--json", "--dry-run").stdout)
    assert document == {"schema": 1, "requeued": 7, "refused": {}, "quarantined": 2, "dry_run": True}
    said = invoke("requeue", "--all").stdout
    assert said.startswith("Requeueing 7 jobs from failed queue\n7 jobs requeued; 2 quarantined are left out")
    assert "Requeueing 0 jobs from failed queue\n0 jobs requeued; 2 quarantined" in invoke("requeue", "--all").stdout


def test_failures_as_json(invoke: Invoke, failed: list[str], conn: redis.Redis) -> None:
    FailedQueue(conn).quarantine(["sms-1"], "bug")
    document = json.loads(invoke("failures", "--error", "BadNumber", "--json").stdout)
    (group,) = document["groups"]
    assert (document["schema"], document["failed"]) == (1, 3)
    assert group.pop("first_seen") <= group.pop("last_seen")
    assert group == {
        "error_class": "app.BadNumber",
        "message": "no",
        "error_frame": "app.sms:send:1",
        "count": 3,
        "quarantined": 1,
        "queues": {"email": 1, "sms": 2},
        "example": "email-1",
    }
    assert "3 (1 quarantined)" in invoke("failures").stdout


@pytest.mark.parametrize("also_failed", [True, False])
@pytest.mark.parametrize(
    "command",
    ["failures", "failures --json", "requeue --all", "requeue --all --json", "requeue --all --dry-run", "quarantine --reason r"],
)
def test_an_unknown_queue_is_named_when_jobs_are_chosen(
    invoke: Invoke, conn: redis.Redis, request: pytest.FixtureRequest, command: str, also_failed: bool
) -> None:
    if also_failed:
        request.getfixturevalue("failed")
    Queue("campaigns", conn).enqueue("tasks.sms.sendSMS")
    assert invoke(*command.split(), "--queue", "campaings").stderr == "no queue campaings is known; did you mean campaigns?\n"
    assert invoke(*command.split(), "--queue", "xyz*").stderr == "no queue xyz* is known\n"
    for known in ("campaigns", "camp*"):
        assert invoke(*command.split(), "--queue", known).stderr == ""


def test_failed_jobs_of_a_queue_whose_name_is_forgotten_are_found(invoke: Invoke, conn: redis.Redis, failed: list[str]) -> None:
    conn.delete("rq:queues")
    assert invoke("requeue", "--all", "--queue", "sms").stderr == ""


def test_no_failures(invoke: Invoke, conn: redis.Redis) -> None:
    assert invoke("failures").stdout == "No failed jobs\n"
    assert json.loads(invoke("failures", "--json").stdout) == {
        "schema": 1,
        "failed": 0,
        "groups": [],
        "held": [],
        "callback_errors": None,
    }
    assert run_worker("failures").stdout == "No failed jobs\n"


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ((), 9),
        (("--queue", "sms"), 6),
        (("--function", "tasks.email.*"), 3),
        (("--error", "TimeoutError"), 6),
        (("--error", "app.Slow", "--queue", "e*"), 1),
        (("--older-than", "1h"), 1),
        (("--older-than", "1e300"), 0),
        (("--newer-than", "1h"), 8),
        (("--limit", "4"), 4),
        (("--error", "KeyError"), 0),
    ],
)
def test_requeue_of_a_choice(invoke: Invoke, failed: list[str], conn: redis.Redis, options: tuple[str, ...], count: int) -> None:
    dry = invoke("requeue", "--all", "--dry-run", *options).stdout
    assert dry.endswith(f"(dry run: nothing is moved)\n{count} jobs would be requeued\n")
    assert json.loads(invoke("requeue", "--all", "--dry-run", "--json", *options).stdout)["dry_run"] is True
    assert FailedQueue(conn).count == 9
    assert invoke("requeue", "--all", *options).stdout.endswith(f"from failed queue\n{count} jobs requeued\n")
    assert FailedQueue(conn).count == 9 - count


def test_quarantine_and_what_it_keeps_back(invoke: Invoke, failed: list[str], conn: redis.Redis) -> None:
    assert invoke("quarantine", "sms-0", "--reason", "blocked").stdout == "1 jobs quarantined\n"
    assert json.loads(invoke("quarantine", "--error", "BadNumber", "--reason", "bug", "--json").stdout) == {
        "schema": 1,
        "quarantined": 3,
        "refused": {},
    }
    assert Job.fetch("sms-0", conn).quarantined == "blocked"
    assert "5 jobs requeued" in invoke("requeue", "--all").stdout
    assert "1 jobs requeued" in invoke("requeue", "sms-0").stdout, "by name"
    assert "3 jobs requeued" in invoke("requeue", "--all", "--include-quarantined").stdout


def test_quarantine_reports_jobs_that_it_could_not_set_aside(invoke: Invoke, failed: list[str], conn: redis.Redis) -> None:
    waiting = Queue("pn", conn).enqueue("tasks.pn.sendPN", job_id="waiting").id
    conn.set("rq:job:broken", "no hash")
    result = invoke("quarantine", waiting, "nobody", "broken", "sms-1", "--reason", "r", code=1)
    assert result.stdout == "1 jobs quarantined\n"
    lines = result.stderr.splitlines()
    assert lines[:2] == ["Unable to quarantine waiting: it is queued, not failed", "Unable to quarantine nobody: no such job"]
    assert lines[2].startswith("Unable to quarantine broken: error: WRONGTYPE")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("quarantine", "--reason", "r"), "give job ids, or select jobs"),
        (("quarantine", "a", "--queue", "sms", "--reason", "r"), "not both"),
        (("quarantine", "a"), "--reason"),
        (("quarantine", "a", "--reason", " "), "must not be empty"),
        (("requeue", "a", "--error", "E"), "only --queue can be used without --all"),
        (("requeue", "a", "--dry-run"), "only --queue can be used without --all"),
        (("failures", "--older-than", "soon"), "use seconds, or a text like"),
        (("failures", "--newer-than", "-5"), "use seconds, or a text like"),
        (("failures", "--queue", "_x"), "reserved"),
    ],
)
def test_usage(invoke: Invoke, conn: redis.Redis, args: tuple[str, ...], said: str) -> None:
    assert said in invoke(*args, code=2).stderr


def test_a_broken_job_is_named(invoke: Invoke, failed: list[str], conn: redis.Redis) -> None:
    conn.delete("rq:job:sms-3")
    conn.set("rq:job:sms-3", "no hash")
    result = invoke("requeue", "--all", code=1)
    assert "8 jobs requeued" in result.stdout
    assert result.stderr.startswith("Unable to requeue sms-3: WRONGTYPE")


def test_dropped_jobs_are_shown(invoke: Invoke, failed: list[str], conn: redis.Redis) -> None:
    for job_id in failed:
        conn.hset(f"rq:job:{job_id}", "ended_at", "2026-01-01T00:00:00.000000Z")
    Broker(conn, FleetConstants(failed_max=5)).clean()
    assert "Dropped before their time, as there were too many: 4 failed" in invoke("info").stdout
    assert json.loads(invoke("info", "--json").stdout)["dropped"] == {"failed": 4}
