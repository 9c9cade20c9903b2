"""`batches` and `batch show | graph | cancel` on a real Redis."""

from __future__ import annotations

import json

import redis

from fusion import Batch, Queue
from tests.cli.conftest import Invoke
from tests.kit.hands import status_of

NOOP, ECHO = "tests.jobs.basic.noop", "tests.jobs.basic.echo"


def test_looking_and_canceling(invoke: Invoke, conn: redis.Redis) -> None:
    assert invoke("batches").stdout == "No batches\n"
    outer = Batch("mails", queue="q", id="outer", connection=conn, on_complete=NOOP).open()
    for n in range(3):
        outer.enqueue(NOOP, job_id=f"a{n}")
    Batch(id="inner", parent=outer, connection=conn).open().close()
    lines = [line.split() for line in invoke("batches").stdout.splitlines()]
    assert [line[:7] for line in lines[1:]] == [
        ["inner", "-", "success", "0", "0", "0", "0"],
        ["outer", "mails", "open", "4", "3", "1", "0"],
    ]
    assert invoke("batches", "--limit", "1").stdout.splitlines()[-1] == "1 of 2 batches"
    assert [one["id"] for one in json.loads(invoke("batches", "--json").stdout)["batches"]] == ["inner", "outer"]
    said = invoke("batch", "show", "outer").stdout.splitlines()
    assert said[0] == "outer (mails): open; 4 in all, 3 open, 1 finished"
    assert said[1].startswith("  on complete: ")
    assert said[-1].split() == ["-", "#inner", "finished", "-"] and said[-2].split()[:3] == [NOOP, "a2", "open"]
    shown = json.loads(invoke("batch", "show", "outer", "--limit", "1", "--json").stdout)
    assert (shown["status"], shown["members"]) == ("open", [{"id": "a0", "status": "open"}])
    assert invoke("batch", "cancel", "outer").stdout == "3 jobs canceled\n"
    assert status_of(conn, "a0") == "canceled"
    assert json.loads(invoke("batch", "cancel", "outer", "--json").stdout) == {
        "schema": 1,
        "id": "outer",
        "canceled": 0,
        "running": 0,
    }
    for command in ("show", "cancel"):
        missing = invoke("batch", command, "nobody", code=1)
        assert missing.stderr.startswith("Error: there is no batch nobody; ")


def test_a_batch_is_drawn(invoke: Invoke, conn: redis.Redis) -> None:
    assert "there is no batch nobody" in invoke("batch", "graph", "nobody", code=1).stderr
    Batch(id="empty", connection=conn).open()
    assert invoke("batch", "graph", "empty").stdout == "Nothing is in it yet\n"
    with Batch(queue="q", id="b", connection=conn, on_success=ECHO) as batch:
        batch.enqueue(NOOP, job_id="one")
        batch.enqueue(NOOP, job_id="two", depends_on="one")
    lines = invoke("batch", "graph", "b").stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [[NOOP, "queued"], [NOOP, "deferred"], [ECHO, "deferred"]]
    conn.delete("rq:job:one")
    assert invoke("batch", "graph", "b").stdout.splitlines()[1].split()[:2] == ["?", "open"], "a member without a record"
    assert lines[2].startswith("  ") and lines[3].startswith("    ") and lines[3].split()[-1] == "two"
    with Batch(queue="q", id="large", connection=conn, on_complete=ECHO) as batch:
        batch.add("q", [Queue.prepare_data(NOOP) for _ in range(200)])
        batch.add("q", [Queue.prepare_data(ECHO, "x") for _ in range(101)])
    lines = invoke("batch", "graph", "large").stdout.splitlines()
    assert sorted(line.split() for line in lines[1:3]) == [[ECHO, "101", "101", "queued"], [NOOP, "200", "200", "queued"]]
    assert lines[4] == "Then:" and lines[-1].split()[:2] == [ECHO, "deferred"]
    assert json.loads(invoke("batch", "graph", "large", "--json").stdout)["counted"] == 301


def test_a_job_joins_by_its_option(invoke: Invoke, conn: redis.Redis) -> None:
    batch = Batch(id="b", connection=conn).open()
    invoke("enqueue", "tasks.sms.sendSMS", "--batch", "b", "-q", "q")
    assert batch.info().total == 1
    batch.close()
    refused = invoke("enqueue", "tasks.sms.sendSMS", "--batch", "b", "-q", "q", code=1)
    assert "is closed and takes no more jobs" in refused.stderr
