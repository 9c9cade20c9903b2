"""One job over HTTP: all that is known of it, and what may be done with it."""

from __future__ import annotations

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
    for query in ("", "?include=result", "?include=trace", "?include=arguments", "?include=result,arguments,trace"):
        answer = caller.ask("GET", f"/api/v1/jobs/a{query}")
        assert answer.status == 200
        assert CANARY.encode() not in answer.body, query
        assert ("arguments" in answer.json) is ("arguments" in query)
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
    assert caller.ask("DELETE", "/api/v1/jobs/a").json == {"job_id": "a", "deleted": True}
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
        answer = own.ask("GET", f"/api/v1/jobs/{job_id}?include=result,arguments,trace")
        assert answer.status == 200
        assert b"zebra" not in answer.body, job_id
    assert own.ask("GET", "/api/v1/jobs/mine").json["children"]["total"] == 1
    assert own.ask("GET", "/api/v1/jobs/child").json["parents"]["total"] == 1
    assert own.ask("GET", "/api/v1/jobs/waits").json["limits"]["held"] is None
