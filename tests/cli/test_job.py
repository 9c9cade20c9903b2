"""`job show` and `job copy` on a real Redis."""

from __future__ import annotations

import json
import re
from time import monotonic

import pytest
import redis

from fusion import Job, Queue
from fusion.cli import tables
from fusion.cli.job_render import lines
from fusion.cli.tables import cells
from fusion.cron.scheduler import Scheduler
from fusion.jobs.sheet import sheet
from fusion.store.access import sheet_inspector_of
from fusion.store.write.broker import Broker
from tests.cli.conftest import Fail, Hands, Invoke
from tests.operations.hands import begin
from tests.store.batch_hands import begin as begin_batch

SMS = "tasks.sms.sendSMS"


def test_a_waiting_one(invoke: Invoke, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(SMS, {"to": "+4915112345678"}, job_id="a", priority="high", log_tag="SMS_OTP")
    said = invoke("job", "show", "a", "--utc").stdout
    assert re.match(r"tasks\.sms\.sendSMS  a queued for [0-9.]+ s\n", said)
    assert said.splitlines()[1] == "Queue:       sms, priority 2 (high)"
    assert "It waits for: no live worker serves its queue sms; start one: `worker sms`" in said
    assert 'Arguments:   {"args":[{"to":"+*************"}],"kwargs":{}}' in said
    assert "4915112345678" not in said
    document = json.loads(invoke("job", "show", "a", "--json").stdout)
    assert (document["schema"], document["id"], document["status"]) == (1, "a", "queued")
    assert [wait["code"] for wait in document["waits"]] == ["no_worker", "turn"]


def test_every_priority_over_the_highest_name_is_high(invoke: Invoke, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(SMS, job_id="a", priority=101)
    assert "Queue:       sms, priority 101 (high)" in invoke("job", "show", "a").stdout


def test_a_failed_one_and_its_trace(invoke: Invoke, conn: redis.Redis, fail: Fail) -> None:
    (job_id,) = fail("sms", 1)
    conn.hset(f"rq:job:{job_id}", "exc_info", "\n".join(f"line {n}" for n in "abcdefghijklmnopqrst"))
    short, whole = invoke("job", "show", job_id).stdout, invoke("job", "show", job_id, "--trace").stdout
    assert "Trace, the last 12 of 20 lines (--trace shows all):" in short
    assert ("  line a" in short, "  line a" in whole, "  line t" in short) == (False, True, True)
    assert len(json.loads(invoke("job", "show", job_id, "--json", "--trace").stdout)["trace"]["lines"]) == 20


@pytest.mark.parametrize("columns", [80, 200])
def test_it_fits_a_terminal(conn: redis.Redis, hands: Hands, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    queue = Queue("sms", conn)
    queue.enqueue(
        SMS,
        "x" * 300,
        job_id="a" * 40,
        callback_url="https://example.com/" + "y" * 200,
        concurrency_key="k" * 60,
        meta={"m": "n " * 90},
    )
    worker = hands("sms", name="a-very-long-name-of-a-host-in-a-far-away-zone.example.com.4711").register()
    worker.end("retry", worker.turn(slots=1))
    monkeypatch.setattr("fusion.cli.job_render.room", lambda: columns - 1)
    monkeypatch.setattr(tables, "room", lambda: columns - 1)
    said = lines(sheet(sheet_inspector_of(conn), "a" * 40))
    assert max(cells(line) for line in said) < columns, [line for line in said if cells(line) >= columns]


def test_job_show_of_an_unknown_job(invoke: Invoke, conn: redis.Redis) -> None:
    assert "no job 'nobody'" in invoke("job", "show", "nobody", code=1).stderr
    assert "use 1 to 128" in invoke("job", "show", "a b", code=2).stderr
    assert "no job 'nobody'" in invoke("job", "copy", "nobody", code=1).stderr


def test_job_show_of_a_job_in_the_trash(invoke: Invoke, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(SMS, job_id="a")
    Job("a", {}, conn).delete()
    said = invoke("job", "show", "a", code=1).stderr
    assert said == "Error: job a was deleted and is in the trash; to bring it back: run_worker.py trash restore a [FUS-106]\n"
    invoke("trash", "restore", "a")
    assert invoke("job", "show", "a").stdout.startswith(f"{SMS}  a queued")


def test_the_name_of_something_else_names_the_command_that_shows_it(
    invoke: Invoke, conn: redis.Redis, hands: Hands, fail: Fail
) -> None:
    Queue("sms", conn).enqueue(SMS, concurrency_key="tenant-7", max_concurrent=1)
    fail("q", 1)
    (group,) = [raw.decode() for raw in conn.zrange("rq:failures", 0, -1)]
    hands("sms", name="web1.example.4711").register()
    begin_batch(Broker(conn), "import-7")
    Scheduler(connection=conn).cron("*/5 * * * *", SMS, id="nightly")
    operation = begin(conn, "delete", "queue:q")
    for name, kind, command in (
        ("sms", "queue", "info sms"),
        ("web1.example.4711", "worker", "info --only-workers"),
        ("import-7", "batch", "batch show import-7"),
        ("nightly", "cron entry", "cron history nightly"),
        ("tenant-7", "concurrency key", "limit show tenant-7"),
        (operation, "operation", f"operations show {operation}"),
        (group, "failure group", f"failures {group}"),
    ):
        said = invoke("job", "show", name, code=1).stderr
        article = "an" if kind == "operation" else "a"
        assert said == f"Error: no job '{name}', but that is {article} {kind}: run_worker.py {command} [FUS-106]\n"
        shown = invoke(*command.split()).stdout
        assert shown and (name in shown or kind == "operation")
    conn.sadd("rq:queues", "rq:queue:import-7")
    assert invoke("job", "show", "import-7", code=1).stderr == (
        "Error: no job 'import-7', but that is a queue: run_worker.py info import-7; and a batch: run_worker.py batch show import-7 [FUS-106]\n"
    )


def test_the_lines_of_its_log(invoke: Invoke, conn: redis.Redis, hands: Hands) -> None:
    """Those at either end of its run, however much others say meanwhile; where the rest is."""
    Queue("sms", conn).enqueue(SMS, job_id="a")
    worker = hands("sms").register()
    claimed, begun = worker.turn(slots=1), monotonic()

    def others(count: int) -> None:
        with conn.pipeline(transaction=False) as pipe:
            for _ in range(count):
                pipe.xadd("rq:events", {"event": "log", "source": "log", "job_id": "b", "message": "of another"})
            pipe.execute()

    for line in ("first", "last"):
        others(300)
        conn.xadd("rq:events", {"event": "log", "source": "log", "job_id": "a", "message": f"the {line} of it"})
        others(300 if line == "last" else 1500)
    worker.end("finished", claimed, monotonic() - begun)
    others(1100)
    said = invoke("job", "show", "a").stdout
    assert re.search(r"LOG AT +LINE\n.+ the first of it\n.+ the last of it\n", said)
    assert "of another" not in said
    assert said.endswith("There may be more lines: run_worker.py events tail --job a\n")
    entries = json.loads(invoke("job", "show", "a", "--json").stdout)["events"]["entries"]
    assert [one["message"] for one in entries if one["log"]] == ["the first of it", "the last of it"]


def test_a_copy_with_a_value_that_was_not_shown(invoke: Invoke, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(SMS, {"to": "+49", "password": "geheim"}, job_id="a")
    assert "is queued; only one that has ended is copied" in invoke("job", "copy", "a", code=1).stderr
    Job.fetch("a", conn).cancel()
    made = json.loads(
        invoke("job", "copy", "a", "--args", '[{"to": "+30", "password": "***"}]', "--priority", "high", "--json").stdout
    )
    found = Job.fetch(made["job_id"], conn)
    assert (found.args, found.priority) == (({"to": "+30", "password": "geheim"},), 2)
    assert "a copy of a" in invoke("job", "copy", "a").stdout
    assert f"Copied to:   {made['job_id']}, " in invoke("job", "show", "a").stdout
    for args, said in (
        (("--args", "{}"), "give a JSON list"),
        (("--args", "["), "give a JSON list"),
        (("--kwargs", "[]"), "give a JSON object"),
        (("--args", '["***"]'), "it holds a mask"),
        (("--priority", "urgent"), "high, moderate, low"),
        (("-q", "failed"), "reserved"),
    ):
        assert said in invoke("job", "copy", "a", *args, code=2).stderr


def test_its_log(invoke: Invoke, conn: redis.Redis, fail: Fail) -> None:
    (job_id,) = fail("sms", 1)
    assert "Log of attempt" not in invoke("job", "show", job_id).stdout
    now = int(conn.time()[0]) * 1000
    conn.hset(
        f"rq:log:{job_id}", mapping={"lines": f"{now} one\n{now} two \x1b[2J", "left_out": 3, "attempt": 2, "at": now + 1000}
    )
    said = invoke("job", "show", job_id).stdout
    assert "Log of attempt 2, the last 2 lines, 3 before them are not kept:\n" in said
    assert re.search(r"^  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.000  one$", said, re.MULTILINE)
    assert "\x1b" not in said
    log = json.loads(invoke("job", "show", job_id, "--json").stdout)["log"]
    assert [line["text"] for line in log["lines"]] == ["one", "two \\x1b[2J"]
