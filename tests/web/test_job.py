"""One job over HTTP: all that is known of it, and what may be done with it."""

from __future__ import annotations

import json

import pytest
import redis

from fusion import Job, Queue
from fusion.kernel.scope import Scope
from tests.web.strangers import TASK, Caller

CANARY = "S3CR3T-4711-canary"


@pytest.fixture
def caller(conn: redis.Redis) -> Caller:
    return Caller(conn)


def test_arguments_only_where_they_are_asked_for_and_masked(caller: Caller, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(TASK, CANARY, job_id="a", meta={"token": CANARY}, description=f"of {CANARY}")
    for query in ("", "?include=result", "?include=trace", "?include=arguments", "?include=events,result,arguments,trace"):
        answer = caller.ask("GET", f"/api/v1/jobs/a{query}")
        assert answer.status == 200
        assert CANARY.encode() not in answer.body, query
        assert ("arguments" in answer.json) is ("arguments" in query)
    looker = Caller(conn, scopes=("read",))
    assert looker.ask("GET", "/api/v1/jobs/a?include=events").json["timeline"]["complete"] is True
    assert looker.ask("GET", "/api/v1/jobs/a").json["events"] == {"entries": [], "complete": False}
    for query in ("result", "arguments", "trace", "events,trace"):
        assert looker.ask("GET", f"/api/v1/jobs/a?include={query}").code == "missing_scope"
    shown = caller.ask("GET", "/api/v1/jobs/a?include=arguments").json
    assert (shown["arguments"], shown["meta"]) == ('{"args":["***"],"kwargs":{}}', '{"token":"***"}')
    assert [wait["code"] for wait in shown["waits"]] == ["no_worker", "turn"]


def test_verbs_of_one_job(caller: Caller, conn: redis.Redis) -> None:
    for job_id in ("a", "b"):
        Queue("sms", conn).enqueue(TASK, job_id=job_id)
    assert caller.ask("POST", "/api/v1/jobs/a/cancel").json == {"job_id": "a", "status": "canceled", "pending": False}
    assert caller.ask("POST", "/api/v1/jobs/a/cancel").status == 200, "canceled already is no error"
    first = caller.ask("POST", "/api/v1/jobs/a/requeue", **{"idempotency-key": "x"})
    assert first.json == {"job_id": "a", "status": "queued"}
    assert caller.ask("POST", "/api/v1/jobs/a/requeue", **{"idempotency-key": "x"}).status == 200, "a resend is the same again"
    assert caller.ask("POST", "/api/v1/jobs/a/requeue").code == "wrong_state"
    assert caller.ask("DELETE", "/api/v1/jobs/a").json == {"job_id": "a", "deleted": True, "kept": 1}
    assert not Job.exists("a", conn)
    for method, path in (("DELETE", "a"), ("POST", "a/cancel"), ("POST", "a/requeue"), ("GET", "a")):
        assert caller.ask(method, f"/api/v1/jobs/{path}").code == "no_such_job"


def test_jobs_of_other_queues_are_left_out_of_what_is_known_of_one(conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(TASK, job_id="mine")
    Queue("pn", conn).enqueue(TASK, job_id="zebra", depends_on="mine")
    Queue("pn", conn).enqueue(TASK, job_id="zebra-key", concurrency_key="smtp", max_concurrent=1)
    Queue("sms", conn).enqueue(TASK, job_id="child", depends_on=["mine", "zebra"], concurrency_key="smtp", max_concurrent=1)
    Queue("sms", conn).enqueue(TASK, job_id="waits", concurrency_key="smtp", max_concurrent=1)
    own = Caller(conn, Scope(("sms",)))
    for job_id in ("mine", "child", "waits"):
        assert b"zebra" in Caller(conn).ask("GET", f"/api/v1/jobs/{job_id}").body
        answer = own.ask("GET", f"/api/v1/jobs/{job_id}?include=events,result,arguments,trace")
        assert answer.status == 200
        assert b"zebra" not in answer.body, job_id
    assert own.ask("GET", "/api/v1/jobs/mine").json["children"]["total"] == 1
    assert own.ask("GET", "/api/v1/jobs/child").json["parents"]["total"] == 1
    assert own.ask("GET", "/api/v1/jobs/waits").json["limits"]["held"] is None


def test_an_edited_copy(caller: Caller, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(TASK, {"to": "+4915112345678", "password": CANARY}, job_id="a")
    assert caller.ask("POST", "/api/v1/jobs/a/copy", {}).code == "wrong_state"
    Job.fetch("a", conn).cancel()
    args = json.loads(caller.ask("GET", "/api/v1/jobs/a?include=arguments").json["arguments"])["args"]
    args[0]["to"] = "+49301"
    first = caller.ask("POST", "/api/v1/jobs/a/copy", {"args": args}, **{"idempotency-key": "x"})
    assert first.status == 201
    made = Job.fetch(first.json["job_id"], conn)
    assert made.args == ({"to": "+49301", "password": CANARY},)
    assert first.json == {"job_id": made.id, "status": "queued", "queue": "sms", "copied_from": "a"}
    # the same again makes no other, whatever happened to the two
    for change in (lambda: None, lambda: made.cancel(), lambda: Job.fetch("a", conn).requeue()):
        change()
        again = caller.ask("POST", "/api/v1/jobs/a/copy", {"args": args}, **{"idempotency-key": "x"})
        assert (again.status, again.json["job_id"]) == (201, made.id)
    assert conn.hget("rq:job:a", "copied_to") == made.id.encode()
    other = caller.ask("POST", "/api/v1/jobs/a/copy", {"args": []}, **{"idempotency-key": "x"})
    assert (other.status, other.code) == (409, "key_reused")


def test_what_a_copy_may_not_be(caller: Caller, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(TASK, {"password": CANARY}, job_id="a")
    Queue("sms", conn).enqueue("os.system", "x", job_id="b")
    for job_id in ("a", "b"):
        Job.fetch(job_id, conn).cancel()
    for path, body, status, field in (
        ("a", {"args": [{"other": "***"}]}, 422, "args"),
        ("a", {"args": {}}, 422, "args"),
        ("a", {"kwargs": []}, 422, "kwargs"),
        ("a", {"queue": "failed"}, 422, "queue"),
        ("a", {"priority": "urgent"}, 422, "priority"),
        ("a", {"func": "os.system"}, 422, "func"),
        ("b", {}, 403, None),
        ("nobody", {}, 404, None),
        ("a", {"args": ["x" * 600_000]}, 413, None),
    ):
        answer = caller.ask("POST", f"/api/v1/jobs/{path}/copy", body)
        assert (answer.status, answer.json["error"].get("field")) == (status, field), (body, answer)
        assert CANARY.encode() not in answer.body
    assert not conn.hexists("rq:job:a", "copied_to")
    own = Caller(conn, Scope(("sms",)))
    assert own.ask("POST", "/api/v1/jobs/a/copy", {"queue": "pn"}).code == "queue_not_allowed"
