"""Batches over HTTP."""

from __future__ import annotations

from typing import Any

import redis

from fusion import Batch
from tests.web.harness import Answer, ServerProcess, Tokens


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
