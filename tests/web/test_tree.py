"""The graph around a job over HTTP."""

from __future__ import annotations

import redis

from fusion import Queue
from tests.web.harness import ServerProcess, Tokens


def test_tree(service: ServerProcess, tokens: Tokens, conn: redis.Redis) -> None:
    queue = Queue("sms", conn)
    queue.enqueue("tasks.sms.sendSMS", job_id="a")
    queue.enqueue("tasks.sms.sendSMS", job_id="b", depends_on="a")
    answer = service.ask("GET", "/api/v1/jobs/a/tree", token=tokens.by_scope["read"])
    assert (answer.status, answer.json["id"], answer.json["cut"]) == (200, "a", False)
    assert [(node["id"], node["status"], node["level"]) for node in answer.json["nodes"]] == [
        ("a", "queued", 0),
        ("b", "deferred", 1),
    ]
    assert service.ask("GET", "/api/v1/jobs/a/tree?limit=1", token=tokens.by_scope["read"]).json["cut"] is True
    for path, status in (("nobody/tree", 404), ("a/tree?limit=1001", 422)):
        assert service.ask("GET", f"/api/v1/jobs/{path}", token=tokens.by_scope["read"]).status == status
