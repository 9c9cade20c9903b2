"""What people change over HTTP besides single jobs: the fleet, queues, cron entries, workers; and what happens to what is deleted."""

from __future__ import annotations

import redis

from fusion import Queue
from fusion.cron.scheduler import Scheduler
from fusion.kernel.scope import Scope
from fusion.store.read.audit_inspector import AuditInspector
from fusion.store.write.broker import Broker
from fusion.trash import Trash
from tests.kit.hands import Hand, put
from tests.operations.hands import carry_on, failed
from tests.web.strangers import TASK, Caller


def test_the_fleet_is_suspended_and_resumed(conn: redis.Redis) -> None:
    caller = Caller(conn)
    assert caller.ask("POST", "/api/v1/fleet/resume").json == {"suspended": False, "was": False}
    assert caller.ask("POST", "/api/v1/fleet/suspend").json == {"suspended": True, "duration": None}
    assert conn.ttl("rq:suspended") == -1
    assert caller.ask("GET", "/api/v1/info").json["suspended"] is True
    assert caller.ask("POST", "/api/v1/fleet/suspend", {"duration": "5m"}).json == {"suspended": True, "duration": 300}
    assert 290 < conn.ttl("rq:suspended") <= 300
    assert caller.ask("POST", "/api/v1/fleet/resume").json == {"suspended": False, "was": True}
    for body, field in (({"duration": -1}, "duration"), ({"reason": "so"}, "reason")):
        answer = caller.ask("POST", "/api/v1/fleet/suspend", body)
        assert (answer.status, answer.json["error"]["field"]) == (422, field)
    assert not conn.exists("rq:suspended")
    assert {entry.action for entry in AuditInspector(conn).entries()} == {"suspend", "resume"}


def test_a_queue_is_emptied_into_the_trash_or_for_good(conn: redis.Redis) -> None:
    caller, path = Caller(conn), "/api/v1/queues/sms/empty"
    put(Broker(conn), "sms", "a", "b", "c")
    hand = Hand(Broker(conn), "sms")
    hand.take()
    assert caller.ask("POST", path).json == {"name": "sms", "deleted": 2, "kept": 2, "more": False}
    assert conn.exists("rq:job:a"), "what runs stays"
    assert Trash(conn).restore(["b", "c"]).restored == 2
    assert caller.ask("POST", path, {"purge": True}).json == {"name": "sms", "deleted": 2, "kept": 0, "more": False}
    assert Trash(conn).count == 0
    assert caller.ask("POST", path, {"purge": "yes"}).json["error"]["field"] == "purge"
    assert [entry.count for entry in AuditInspector(conn).entries()][:3] == [None, 2, 2]


def test_what_is_left_when_time_is_over_is_told(conn: redis.Redis) -> None:
    put(Broker(conn), "sms", *(f"job{n}" for n in range(250)))
    assert Trash(conn).empty_queue("sms", seconds=0) == (100, 100, True), "a part, or a slow Redis would never be done"
    thrown = Trash(conn).empty_queue("sms")
    assert thrown == (150, 150, False)


def test_a_deleted_job_is_kept_or_not(conn: redis.Redis) -> None:
    caller = Caller(conn)
    put(Broker(conn), "sms", "a", "b", "c", "d")
    for method, path, body, kept in (
        ("DELETE", "a", None, 1),
        ("DELETE", "b?purge=1", None, 0),
        ("POST", "c/delete", None, 1),
        ("POST", "d/delete", {"purge": True}, 0),
    ):
        answer = caller.ask(method, f"/api/v1/jobs/{path}", body)
        assert answer.json == {"job_id": path[0], "deleted": True, "kept": kept}
    assert {entry.id for entry in Trash(conn)} == {"a", "c"}
    assert caller.ask("POST", "/api/v1/jobs/a/delete", {"for": "good"}).code == "invalid_value"


def test_an_operation_that_deletes_tells_how_many_are_kept(conn: redis.Redis) -> None:
    caller, path = Caller(conn), "/api/v1/operations"
    failed(conn, 3, "q", "k")
    failed(conn, 2, "p", "p")
    begun = caller.ask("POST", path, {"action": "delete", "query": "queue:q"}).json["id"]
    carry_on(conn, begun)
    purged = caller.ask("POST", path, {"action": "delete", "query": "queue:p", "purge": True}).json["id"]
    carry_on(conn, purged)
    found = {one["id"]: (one["done"], one["kept"]) for one in caller.ask("GET", path).json["operations"]}
    assert found == {begun: (3, 3), purged: (2, 0)}
    wrong = caller.ask("POST", path, {"action": "requeue", "query": "queue:q", "purge": True})
    assert (wrong.status, wrong.json["error"]["field"]) == (422, "purge")


def test_an_operation_with_a_key_is_begun_once(conn: redis.Redis) -> None:
    caller, path, key = Caller(conn), "/api/v1/operations", {"idempotency-key": "tuesday"}
    failed(conn, 3)
    body = {"action": "requeue", "query": "state:failed"}
    first = caller.ask("POST", path, body, **key)
    again = caller.ask("POST", path, body, **key)
    assert (first.status, again.status) == (202, 202)
    assert first.json == again.json
    carry_on(conn, first.json["id"])
    later = caller.ask("POST", path, body, **key)
    assert (later.status, later.json["id"], later.json["status"]) == (202, first.json["id"], "done")
    other = caller.ask("POST", path, {"action": "delete", "query": "state:queued"}, **key)
    assert (other.status, other.code) == (409, "key_reused")
    whose = Caller(conn, name="another").ask("POST", path, body, **key)
    assert (whose.status, whose.json["id"] != first.json["id"]) == (202, True)
    assert conn.zcard("rq:operations") == 2
    assert caller.ask("POST", path, body | {"dry_run": True}, **key).status == 200


def test_a_cron_entry_is_removed_and_run_by_force(conn: redis.Redis) -> None:
    caller = Caller(conn)
    Scheduler(conn).cron("* * * * *", TASK, id="nightly", queue="sms", overlap="skip")
    assert caller.ask("POST", "/api/v1/cron/nightly/run").status == 200
    refused = caller.ask("POST", "/api/v1/cron/nightly/run")
    assert (refused.status, refused.code) == (409, "wrong_state")
    assert caller.ask("POST", "/api/v1/cron/nightly/run", {"force": True}).status == 200
    assert caller.ask("POST", "/api/v1/cron/nightly/remove").json == {"id": "nightly", "removed": True, "declared_by": None}
    assert caller.ask("POST", "/api/v1/cron/nightly/remove").code == "no_such_entry"
    assert len(Queue("sms", conn)) == 2, "its jobs stay"


def test_a_worker_is_told_to_stop(conn: redis.Redis) -> None:
    Hand(Broker(conn), "sms", name="worker.1")
    listening = conn.pubsub(ignore_subscribe_messages=True)
    listening.subscribe("rq:pubsub:worker.1")
    assert listening.get_message(timeout=5) is None, "the subscription itself"
    assert Caller(conn).ask("POST", "/api/v1/workers/worker.1/stop").json == {"name": "worker.1", "command": "shutdown"}
    message = listening.get_message(timeout=5)
    assert message is not None
    assert message["data"] == b'{"command": "shutdown"}'
    listening.close()


def test_the_jobs_of_a_failure_group_are_exported(conn: redis.Redis) -> None:
    failed(conn, 3)
    caller = Caller(conn)
    (group,) = caller.ask("GET", "/api/v1/failures").json["groups"]
    jobs = caller.ask("GET", f"/api/v1/failures/{group['id']}").json["jobs"]
    answer = caller.ask("GET", f"/api/v1/failures/{group['id']}?format=csv")
    assert answer.body.decode().split() == ["id", *jobs]
    lines = caller.ask("GET", f"/api/v1/failures/{group['id']}?format=jsonl&limit=2").body.decode().splitlines()
    assert lines == [f'{{"id": "{job}"}}' for job in jobs[:2]]


def test_a_job_that_was_deleted_is_said_to_be_in_the_trash(conn: redis.Redis) -> None:
    put(Broker(conn), "sms", "a")
    Broker(conn).delete_to_trash(["a"])
    answer = Caller(conn).ask("GET", "/api/v1/jobs/a")
    assert (answer.status, "POST /api/v1/trash/a/restore" in answer.json["error"]["message"]) == (404, True)
    stranger = Caller(conn, Scope(("email",))).ask("GET", "/api/v1/jobs/a")
    assert "trash" not in Caller(conn).ask("GET", "/api/v1/jobs/b").json["error"]["message"]
    conn.set("rq:trash", "of a wrong type")
    assert Caller(conn).ask("GET", "/api/v1/jobs/a").status == 404
    assert (stranger.status, "trash" in stranger.json["error"]["message"]) == (404, False)
