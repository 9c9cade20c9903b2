"""`--query` of the commands that change jobs, and `operations`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
import redis

from fusion.operations import desk
from fusion.operations.carrier import Carrier
from fusion.store.layout.pauses import this_user
from fusion.store.read.audit_inspector import AuditInspector
from fusion.store.write.broker import Broker
from tests.cli.conftest import Hands, Invoke
from tests.kit.hands import fields_of, put, status_of
from tests.operations.hands import ROOT, begin, carry_on, failed
from tests.store.operation_hands import record


def test_a_query_is_counted_asked_about_and_done(invoke: Invoke, conn: redis.Redis) -> None:
    failed(conn, 12)
    dry = invoke("delete", "--query", "queue:q", "--dry-run").stdout
    assert "q      failed    12" in dry
    assert "12 jobs match queue:q state:scheduled" in dry
    refused = invoke("delete", "--query", "queue:q state:failed", code=1)
    assert "give --yes" in refused.stderr
    assert conn.zcard("rq:queue:failed") == 12
    assert invoke("requeue", "--query", "state:failed id:f1,f2").stdout == "2 jobs requeued, 0 skipped, 0 refused\n"
    told = json.loads(invoke("delete", "--query", "state:failed", "--yes", "--json").stdout)["operation"]
    assert (told["done"], told["status"], told["why"]) == (10, "done", {})
    assert [status_of(conn, f"f{n}") for n in (1, 3)] == ["queued", None]
    assert "No job matches state:failed" in invoke("requeue", "--query", "state:failed").stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["requeue", "--query", "state:queued"], "requeue does nothing to jobs that are queued"),
        (["requeue", "--query", "stat:failed"], "did you mean 'state'"),
        (["requeue", "--query", ""], "needs a query that says which jobs"),
        (["requeue", "--all", "--query", "queue:q"], "--query alone selects the jobs"),
        (["requeue", "f1", "--detach"], "--yes and --detach go with --query"),
        (["cancel", "x", "--query", "queue:q"], "--query alone selects the jobs"),
        (["stop", "--query", "state:failed"], "what has ended can't be stopped"),
        (["quarantine", "--query", "state:queued", "--reason", "x"], "only failed jobs"),
        (["delete", "--query", "state:started"], "stop it first"),
        (["delete"], "give job ids, or select jobs by --query"),
        (["reprioritise", "x", "--priority", "999"], "use high, moderate, low"),
    ],
)
def test_an_impossible_operation_is_refused_with_the_fix(invoke: Invoke, args: list[str], message: str) -> None:
    assert message in invoke(*args, code=2).stderr


def test_refused_jobs_are_reported(invoke: Invoke, conn: redis.Redis) -> None:
    failed(conn, 3)
    conn.hdel("rq:job:f1", "data")
    told = invoke("requeue", "--query", "state:failed", code=1)
    assert told.stdout == "2 jobs requeued, 0 skipped, 1 refused\n"
    assert "1: without a call to run (for example f1)" in told.stderr


def test_an_operation_that_nobody_carries_on(invoke: Invoke, conn: redis.Redis) -> None:
    failed(conn, 5)
    conn.delete("rq:fleet")
    told = invoke("requeue", "--query", "state:failed", "--detach")
    (name,) = [raw.decode() for raw in conn.zrange("rq:operations", 0, -1)]
    assert f"operations show {name}" in told.stdout
    assert f"No live worker or scheduler can carry it on: start one, or run_worker.py operations run {name}" in told.stderr
    listed = invoke("operations", "list").stdout
    assert " waits " in listed and f"{this_user()} " in listed
    assert f"operations run {name}" in invoke("operations", "show", name).stdout
    assert invoke("operations", "run", name).stdout == "5 jobs requeued, 0 skipped, 0 refused\n"
    assert "done" in invoke("operations", "list").stdout
    assert f"Unable to cancel {name}: it is done" in invoke("operations", "cancel", name, code=1).stderr
    other = begin(conn, "delete", "queue:q")
    assert "0 of 0 jobs were deleted before" in invoke("operations", "cancel", other).stdout
    assert carry_on(conn, other) == "canceled"
    assert json.loads(invoke("operations", "show", other, "--json").stdout)["status"] == "canceled"
    assert "no operation nobody" in invoke("operations", "show", "nobody", code=1).stderr


def test_single_jobs_are_deleted_and_moved(invoke: Invoke, conn: redis.Redis) -> None:
    put(Broker(conn), "q", "a", "b")
    failed(conn, 1)
    assert invoke("reprioritise", "b", "--priority", "high").stdout == "1 jobs moved\n"
    assert fields_of(conn, "b")["priority"] == "2"
    told = invoke("reprioritise", "f0", "nobody", "--priority", "0", code=1).stderr
    assert "Unable to change f0: it has ended (failed)" in told
    assert "nobody: no such job" in told
    assert invoke("delete", "a", "f0", "--yes").stdout == "2 jobs deleted\n"
    assert [status_of(conn, job) for job in ("a", "b", "f0")] == [None, "queued", None]


@pytest.mark.long
def test_ctrl_c_leaves_it_to_others(conn: redis.Redis, redis_url: str) -> None:
    failed(conn, 3000)
    env = {**os.environ, "FUSION_REDIS_URL": redis_url, "FUSION_FAILPOINTS": "advance_operation.before=sleep:1"}
    command = [sys.executable, "run_worker.py", "requeue", "--query", "state:failed"]
    with subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        while not conn.zcard("rq:operations"):
            pass
        (name,) = [raw.decode() for raw in conn.zrange("rq:operations", 0, -1)]
        while "done" not in record(conn, name):
            pass
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=20)
    assert process.returncode == 130
    assert f"operations cancel {name}" in told
    assert carry_on(conn, name) == "done"
    assert int(record(conn, name)["done"]) == 3000


@pytest.mark.parametrize("carried", ["by others", "by nobody", "by a worker", "to its end", "canceled"])
def test_ctrl_c_explains_how_the_operation_goes_on(
    invoke: Invoke, conn: redis.Redis, hands: Hands, monkeypatch: pytest.MonkeyPatch, carried: str
) -> None:
    """Who carries it on, how to look at it and to cancel it; its outcome if it was over already."""
    failed(conn, 3)
    conn.delete("rq:fleet")
    broker = Broker(conn)
    if carried == "by a worker":
        hands("q").register()
    begun = desk.begin

    def begin_and_leave(*args: Any, operation: str = "", **given: Any) -> str:
        name = begun(*args, operation=operation, **given)
        if carried not in ("by nobody", "by a worker"):
            broker.lease_operation(name, "web1.7", 60)
        return name

    def interrupt(*_: Any, **__: Any) -> Any:
        if carried in ("to its end", "canceled"):
            (name,) = [raw.decode() for raw in conn.zrange("rq:operations", 0, -1)]
            broker.lease_operation(name, "web1.7", 0)
            assert carried == "to its end" or broker.cancel_operation(name, "me") == "canceled"
            assert carry_on(conn, name) in ("done", "canceled")
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(desk, "begin", begin_and_leave)
    monkeypatch.setattr("fusion.cli.bulk.time.sleep", interrupt)
    if carried in ("by nobody", "by a worker"):
        monkeypatch.setattr(Carrier, "_part", interrupt)
    told = invoke("requeue", "--query", "state:failed", code={"to its end": 0, "canceled": 1}.get(carried, 130))
    (name,) = [raw.decode() for raw in conn.zrange("rq:operations", 0, -1)]
    entry = AuditInspector(conn).entries()[0]
    if carried == "to its end":
        assert (told.stdout, told.stderr) == ("3 jobs requeued, 0 skipped, 0 refused\n", "")
        return
    if carried == "canceled":
        assert told.stdout == "0 jobs requeued, 0 skipped, 0 refused; canceled by me\n"
        return
    becomes = {
        "by others": "goes on: web1.7 carries it on",
        "by nobody": "waits: no live worker or scheduler can carry it on",
        "by a worker": "goes on: a worker or scheduler carries it on",
    }
    assert told.stdout == ""
    assert told.stderr == (
        f"\nOperation {name} {becomes[carried]}. What is done stays done.\n"
        f"  how far it is:  run_worker.py operations show {name}\n"
        f"  carry it on:    run_worker.py operations run {name}\n"
        f"  cancel it:      run_worker.py operations cancel {name}\n"
    )
    assert (entry.outcome, entry.count) == ("interrupted", 0)
    assert record(conn, name).get("carrier", "") == ("web1.7" if carried == "by others" else "")


def test_ctrl_c_before_it_has_begun(invoke: Invoke, conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    failed(conn, 1)
    monkeypatch.setattr(desk, "begin", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    assert invoke("requeue", "--query", "state:failed", code=130).stderr == "\nInterrupted: nothing was done\n"
    assert not conn.exists("rq:operations")
