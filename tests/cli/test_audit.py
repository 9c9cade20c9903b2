"""`audit`, and that every command that changes something stands there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click
import pytest
import redis
from click.testing import CliRunner

from fusion import Queue
from fusion.audit import AuditedChange, audited
from fusion.cli.main import COMMANDS, cli
from fusion.cron.scheduler import Scheduler
from fusion.kernel.actions import ACTIONS
from fusion.store.read.audit_inspector import NO_ANSWER, AuditEntry, AuditFilter, AuditInspector
from fusion.store.write.broker import Broker
from fusion.store.write.event_broker import EventBroker
from fusion.store.write.limit_broker import LimitBroker
from tests.cli.conftest import Fail, Invoke
from tests.events.hands import reader
from tests.kit.hands import new, put
from tests.store.batch_hands import begin

TASK = "tasks.sms.sendSMS"
#: Of each command that changes something: words that do, and what the audit says of it: action, target, queues.
CHANGES: dict[str, tuple[str, tuple[str, str, str]]] = {
    "requeue": ("sms-000", ("requeue", "sms-000", "sms")),
    "quarantine": ("sms-001 --reason why", ("quarantine", "sms-001", "sms")),
    "empty": ("email --yes", ("empty", "email", "email")),
    "cancel": ("j1", ("cancel", "j1", "sms")),
    "stop": ("j2", ("stop", "j2", "sms")),
    "reschedule": ("later +5m", ("reschedule", "later", "sms")),
    "suspend": ("--duration 9", ("suspend", "", "")),
    "resume": ("", ("resume", "", "")),
    "pause": ("sms email --reason why", ("pause", "sms email", "sms email")),
    "unpause": ("sms", ("unpause", "sms", "sms")),
    "quiet": ("--all", ("quiet", "", "")),
    "unquiet": ("--all", ("unquiet", "", "")),
    "queue set": ("sms --limit 3", ("queue_set", "sms", "sms")),
    "batch cancel": ("b", ("batch_cancel", "b", "")),
    "limit set": ("smtp 3", ("limit_set", "smtp", "")),
    "limit pause": ("smtp --reason why", ("limit_pause", "smtp", "")),
    "limit resume": ("smtp", ("limit_resume", "smtp", "")),
    "limit release": ("smtp j3", ("limit_release", "smtp", "sms")),
    "cron run": ("e", ("cron_run", "e", "")),
    "cron pause": ("e", ("cron_pause", "e", "")),
    "cron resume": ("e", ("cron_resume", "e", "")),
    "cron remove": ("e --yes", ("cron_remove", "e", "")),
    "events replay": ("", ("events_replay", "", "")),
    "events forget": ("file --yes", ("events_forget", "file", "")),
    "callbacks retry": ("--all", ("callbacks_retry", "", "")),
    "trash restore": ("k1", ("trash_restore", "k1", "")),
    "trash empty": ("--yes", ("trash_empty", "", "")),
    "reprioritise": ("j3 --priority high", ("reprioritise", "j3", "sms")),
    "delete": ("j3 --yes", ("delete", "j3", "sms")),
    "operations cancel": ("nothing", ("operations_cancel", "nothing", "")),
    "operations run": ("nothing", ("operations_run", "nothing", "")),
    "schema": ("--raise", ("schema_raise", "", "")),
    "job cancel": ("i1", ("cancel", "i1", "sms")),
    "job stop": ("i2", ("stop", "i2", "sms")),
    "job requeue": ("i2", ("requeue", "i2", "sms")),
    "job show": ("n1 --reveal", ("reveal", "n1", "pn")),
    "job delete": ("i2 --yes", ("delete", "i2", "sms")),
}
#: They show something, run a process, enqueue a job (whose event tells), or touch nothing in Redis that is anybody's.
OTHERS = {
    "worker", "start", "scheduler", "relay", "info", "top", "stats", "enqueue", "failures", "scheduled", "tree", "health", "doctor",
    "completion", "batches", "audit", "job graph", "job copy",
    "server", "dashboard", "server token", "queue show", "batch show", "batch graph", "limit list", "limit show",
    "config show", "debug script", "trash list", "trash show", "jobs", "operations list", "operations show",
    "metrics", "cron list", "cron next", "cron history", "cron validate", "events stats", "events tail", "events setup", "callbacks list",
    "redis start", "redis stop", "redis status", "outbox run", "outbox status", "outbox retry", "outbox delete",
}  # fmt: skip


def _commands() -> Iterator[tuple[str, click.Command]]:
    """All there are, groups by their members unless they do something themselves."""
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", command.commands[inner]) for inner in command.commands)


def _entries(conn: redis.Redis, **wanted: Any) -> list[AuditEntry]:
    return AuditInspector(conn).entries(AuditFilter(**wanted))


def test_no_command_that_changes_something_is_forgotten() -> None:
    recorded = {name: getattr(command.callback, "__recorded__", None) for name, command in _commands()}
    assert {name for name, action in recorded.items() if not action} == OTHERS
    assert {name: action for name, action in recorded.items() if action} == {name: told[0] for name, (_, told) in CHANGES.items()}


def test_each_of_them_is_an_action_of_that_name() -> None:
    recorded = {name: getattr(command.callback, "__recorded__", None) for name, command in _commands()}
    assert {action for action in recorded.values() if action} <= ACTIONS.keys()
    # A copy is an enqueue to the command line, and the events of jobs tell those.
    named = {
        one.name: one.command.partition(" --")[0]
        for one in ACTIONS.values()
        if one.command and one.recorded and one.name != "copy"
    }
    assert {name: command for name, command in named.items() if recorded.get(command) != name} == {}


def test_each_of_them_leaves_an_entry(conn: redis.Redis, fail: Fail, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("FUSION_EVENTS_FILE", str(tmp_path / "events"))
    broker = Broker(conn)
    fail("sms", 2)
    put(broker, "sms", "j1", "j2", "j3", "i1", "i2")
    put(broker, "email", "k1", "k2")
    put(broker, "pn", "n1")
    broker.enqueue("sms", [new("later", delay=600.0)], "n")
    begin(broker, "b")
    LimitBroker(conn).pin_limit("smtp", 2)
    Scheduler(conn).every(3600, TASK, id="e", queue="sms")
    reader(EventBroker(conn), "host.3", "file").read(1, 0)
    for name, (words, told) in CHANGES.items():
        at = len(_entries(conn))
        result = CliRunner().invoke(cli, [*name.split(), *words.split()], prog_name="run_worker.py").exit_code
        new_ones = _entries(conn)[: len(_entries(conn)) - at]
        assert len(new_ones) == 1, (name, result)
        (entry,) = new_ones
        assert (entry.action, entry.target, " ".join(entry.queues)) == told, name
        assert "@" in entry.who
        assert entry.outcome == ("ok" if result == 0 else f"exit code {result}"), name
        assert entry.ended_at is not None and entry.ended_at >= entry.at
    assert {entry.action: entry.count for entry in _entries(conn) if entry.count} == {
        "requeue": 1, "quarantine": 1, "empty": 2, "trash_restore": 1, "trash_empty": 1, "delete": 1,
        "cancel": 1, "stop": 1,
    }  # fmt: skip
    reasons = {entry.action: entry.details.get("reason") for entry in _entries(conn)}
    assert reasons["pause"] == reasons["limit_pause"] == reasons["quarantine"] == "why"


def test_reads_and_usage_errors_leave_no_audit_entry(invoke: Invoke, conn: redis.Redis) -> None:
    put(Broker(conn), "sms", "j1")
    invoke("cancel", "--queue", "sms", "--dry-run")
    invoke("empty", "sms", "--dry-run")
    invoke("schema")
    invoke("limit", "set", "smtp", code=2)
    invoke("pause", "sms", "--duration", "x", code=2)
    assert not conn.exists("rq:audit")


def test_the_audit_distinguishes_a_refusal_from_an_unknown_name(invoke: Invoke, conn: redis.Redis) -> None:
    invoke("pause", "nobody", code=1)
    invoke("cron", "run", "nothing", code=1)
    assert [(entry.action, entry.outcome) for entry in _entries(conn)] == [
        ("cron_run", "NoSuchEntryError"),
        ("pause", "exit code 1"),
    ]


def test_the_audit_shows_escaped_texts_without_secrets(invoke: Invoke, conn: redis.Redis) -> None:
    with audited(
        conn, "token:bil\x1b[31mling", "pause", "sms\u202e", ("sms",), reason="line\nline", url="https://x/?token=geheim"
    ):
        pass
    AuditedChange(conn, "deploy@web1", "cancel", "j1").asked()
    (killed, paused) = json.loads(invoke("audit", "--json").stdout)["entries"]
    assert (killed["who"], killed["outcome"], killed["ended_at"], killed["count"]) == ("deploy@web1", None, None, None)
    assert (paused["outcome"], paused["queues"]) == ("ok", ["sms"])
    assert "geheim" not in json.dumps(paused)
    said = invoke("audit").stdout
    assert NO_ANSWER in said and "\x1b" not in said and "\u202e" not in said
    assert len(said.splitlines()) == 3
    assert "deploy" not in invoke("audit", "--who", "TOKEN:*").stdout
    assert invoke("audit", "--action", "requeue").stdout == "Nobody changed anything of that kind\n"
    assert len(json.loads(invoke("audit", "--limit", "1", "--json", "--since", "1h").stdout)["entries"]) == 1


def test_pages_and_what_is_not_an_entry(conn: redis.Redis) -> None:
    for number in range(1200):
        conn.xadd("rq:audit", {"nonce": f"n{number}", "who": "a", "action": "x", "target": str(number)})
        if number % 2:
            conn.xadd("rq:audit", {"of": f"n{number}", "outcome": "ok", "count": "9" * 30, "details": "{"})
    conn.xadd("rq:audit", {b"\xff": b"\xff"})
    inspector = AuditInspector(conn)
    found, after = list[AuditEntry](), ""
    while page := inspector.entries(limit=500, before=after):
        found += page
        after = page[-1].id
    assert [entry.target for entry in found] == ["", *(str(number) for number in reversed(range(1200)))]
    assert [entry.outcome for entry in found[1:4]] == ["ok", NO_ANSWER, "ok"]
    assert inspector.entries(before="junk") == []


def test_a_change_is_made_though_it_cant_be_written_down(
    invoke: Invoke, conn: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    conn.set("rq:audit", "junk")
    Queue("sms", conn).enqueue(TASK)
    invoke("pause", "sms")
    assert conn.exists("rq:paused:sms")
    assert "is not written down" in caplog.text
