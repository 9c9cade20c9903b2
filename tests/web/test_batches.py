"""Batches over HTTP."""

from __future__ import annotations

from typing import Any

import redis

from fusion import Batch, Queue
from fusion.store.write.broker import Broker
from tests.kit.hands import Hand
from tests.web.harness import Answer, ServerProcess, Tokens

TASK = "tasks.sms.sendSMS"


def test_the_graph_of_a_batch(service: ServerProcess, tokens: Tokens, conn: redis.Redis) -> None:
    with Batch("mails", queue="sms", id="b", connection=conn, on_complete=TASK, on_success=TASK) as batch:
        batch.enqueue(TASK, job_id="one")
        batch.enqueue(TASK, job_id="two", depends_on="one")
        Batch("inside", id="inner", parent=batch, connection=conn).open().close()
    found = service.ask("GET", "/api/v1/batches/b/graph", token=tokens.by_scope["read"]).json
    nodes = {one["id"]: one for one in found["nodes"]}
    roles = {one["role"]: one for one in found["nodes"]}
    assert (found["total"], found["counted"], found["groups"]) == (3, 3, [])
    assert [(one["id"], one["status"], one["function"]) for one in found["nodes"]][:3] == [
        ("one", "queued", TASK),
        ("two", "deferred", TASK),
        ("#inner", "success", "inside"),
    ]
    assert nodes["two"]["parents"] == [{"id": "one", "on_failure": "fail"}]
    for role, policy in (("on_complete", "ignore"), ("on_success", "fail")):
        assert roles[role]["parents"] == [{"id": one, "on_failure": policy} for one in ("two", "#inner")], (
            "those that nobody waits for"
        )
    assert (
        service.ask("GET", "/api/v1/batches/nobody/graph", token=tokens.by_scope["read"]).json["error"]["code"] == "no_such_batch"
    )


def test_members_and_followers_without_a_record_are_in_the_graph(
    service: ServerProcess, tokens: Tokens, conn: redis.Redis
) -> None:
    with Batch(queue="sms", id="b", connection=conn, on_complete=TASK) as batch:
        batch.enqueue(TASK, job_id="ended")
        batch.enqueue(TASK, job_id="lost")
        batch.enqueue(TASK, job_id="foreign")
    follower = str(batch.info().on_complete)
    hand = Hand(Broker(conn), "sms")
    hand.tell(hand.take(), "failed")
    conn.delete("rq:job:ended", "rq:job:lost", f"rq:job:{follower}", "rq:job:foreign")
    conn.lpush("rq:job:foreign", "x")
    found = service.ask("GET", "/api/v1/batches/b/graph", token=tokens.by_scope["read"]).json
    told = [(one["id"], one["role"], one["status"], one["function"]) for one in found["nodes"]]
    assert told[:3] == [
        ("ended", "member", "failed", None),
        ("lost", "member", "open", None),
        ("foreign", "member", "open", None),
    ]
    assert told[3:] == [(follower, "on_complete", "gone", None)]


def test_many_members_are_counted(service: ServerProcess, tokens: Tokens, conn: redis.Redis) -> None:
    with Batch(queue="sms", id="b", connection=conn, on_complete=TASK) as batch:
        batch.add("sms", [Queue.prepare_data(TASK) for _ in range(301)])
    found = service.ask("GET", "/api/v1/batches/b/graph", token=tokens.by_scope["read"]).json
    assert (found["total"], found["counted"]) == (301, 301)
    assert found["groups"] == [{"function": TASK, "state": "queued", "count": 301}]
    assert [one["role"] for one in found["nodes"]] == ["on_complete"]


def test_batches(service: ServerProcess, tokens: Tokens, conn: redis.Redis) -> None:
    def ask(method: str, path: str, scope: str, body: dict[str, Any] | None = None) -> Answer:
        return service.ask(method, f"/api/v1/{path}", body, token=tokens.by_scope[scope])

    batch = Batch("mails", queue="sms", id="b", connection=conn).open()
    call = {"func": "tasks.sms.sendSMS", "args": [{"to": "1", "text": "x"}], "queue": "sms", "batch": "b"}
    made = ask("POST", "jobs", "operate", call)
    assert made.status == 201
    shown = ask("GET", "batches", "read").json
    assert (shown["total"], shown["batches"][0]["id"], shown["batches"][0]["open"]) == (1, "b", 1)
    one = ask("GET", "batches/b?limit=1", "read").json
    assert (one["status"], one["name"], one["members"]) == ("open", "mails", [{"id": made.json["job_id"], "status": "open"}])
    assert ask("GET", "batches/nobody", "read").json["error"]["code"] == "no_such_batch"
    assert ask("POST", "batches/b/cancel", "read", {}).status == 403
    assert ask("POST", "batches/b/cancel", "operate", {}).json == {"id": "b", "canceled": 1, "running": 0}
    assert ask("POST", "batches/nobody/cancel", "operate", {}).status == 404
    assert batch.status == "canceled"
    assert (ask("POST", "jobs", "operate", call).status, ask("POST", "jobs", "operate", {**call, "batch": "no"}).status) == (
        409,
        422,
    )
