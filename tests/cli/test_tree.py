"""`tree` on a real Redis."""

from __future__ import annotations

import json
import re

import redis

from fusion import Job, Queue
from fusion.cli.tree import drawn_tree
from tests.cli.conftest import Invoke

SMS = "tasks.sms.sendSMS"


def _graph(conn: redis.Redis) -> None:
    queue = Queue("sms", conn)
    queue.enqueue(SMS, job_id="a")
    for job_id, parents in (("b", ["a"]), ("c", ["a"]), ("d", ["b", "c"]), ("e", ["d"])):
        queue.enqueue(SMS, job_id=job_id, depends_on=parents)


def test_each_job_stands_once_under_one_that_it_is_tied_to(invoke: Invoke, conn: redis.Redis) -> None:
    _graph(conn)
    assert [line.rstrip() for line in invoke("tree", "d").stdout.splitlines()] == [
        "FUNCTION                   STATE     QUEUE  JOB  ALSO",
        "tasks.sms.sendSMS          deferred  sms    d",
        "",
        "It waits, or waited, for:",
        "  tasks.sms.sendSMS        deferred  sms    b",
        "    tasks.sms.sendSMS      queued    sms    a    c",
        "  tasks.sms.sendSMS        deferred  sms    c",
        "",
        "For it wait, or waited:",
        "  tasks.sms.sendSMS        deferred  sms    e",
    ]
    document = json.loads(invoke("tree", "d", "--json").stdout)
    for node in document["nodes"]:
        assert bool(node.pop("enqueued_at")) and (node.pop("started_at"), node.pop("ended_at")) == (None, None)
    assert (document["schema"], document["id"], document["cut"]) == (1, "d", False)
    assert document["nodes"][0] == {
        "id": "d",
        "status": "deferred",
        "queue": "sms",
        "function": SMS,
        "level": 0,
        "parents": [{"id": "b", "on_failure": "fail"}, {"id": "c", "on_failure": "fail"}],
        "other_parents": 0,
    }
    assert invoke("tree", "d", "--limit", "2").stdout.splitlines()[-1] == "There are more: these are the 2 nearest"


def test_one_alone_and_one_that_is_not_there(invoke: Invoke, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(SMS, job_id="lone")
    assert invoke("tree", "lone").stdout.splitlines()[-1] == "It waits for no other job, and none for it"
    assert "no job 'nobody'" in invoke("tree", "nobody", code=1).stderr


def test_a_long_chain_fits_a_terminal(conn: redis.Redis) -> None:
    queue, last = Queue("sms", conn), None
    for _ in range(15):
        last = queue.enqueue(SMS, depends_on=last)
    assert last is not None
    lines = drawn_tree(Job.fetch(last.id, conn).tree(), within=79)
    assert max(map(len, lines)) <= 79 and [line for line in lines if line.startswith(" " * 12 + "14: ")]


def test_a_graph_has_each_job_behind_what_it_waits_for_and_bars(invoke: Invoke, conn: redis.Redis) -> None:
    _graph(conn)
    rows = {"a": ("2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:10.000000Z", "2026-01-01T00:00:20.000000Z")}
    for job_id in "bcde":
        rows[job_id] = ("2026-01-01T00:00:20.000000Z", "2026-01-01T00:00:20.000000Z", "2026-01-01T00:00:40.000000Z")
    for job_id, times in rows.items():
        conn.hset(
            f"rq:job:{job_id}",
            mapping=dict(zip(("enqueued_at", "started_at", "ended_at"), times, strict=True)) | {"status": "finished"},
        )
    lines = [line.rstrip() for line in invoke("job", "graph", "d").stdout.splitlines()]
    assert [line.split()[0] for line in lines] == ["FUNCTION", *["tasks.sms.sendSMS"] * 5]
    assert [len(line) - len(line.lstrip()) for line in lines[1:]] == [0, 2, 2, 4, 6]
    assert re.search(r"finished +10 s +10 s +\.{6}#{6} +a$", lines[1]), lines[1]
    assert re.search(r"finished +0\.0 s +20 s +#{11} +d +b, c$", lines[4]), lines[4]
    assert json.loads(invoke("job", "graph", "d", "--json").stdout)["id"] == "d"
    assert invoke("job", "graph", "d", "--limit", "2").stdout.splitlines()[-1] == "There are more: these are the 2 nearest"
