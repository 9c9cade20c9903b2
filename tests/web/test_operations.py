"""Operations over HTTP."""

from __future__ import annotations

import redis

from fusion.kernel.scope import Scope
from fusion.store.write.broker import Broker
from tests.kit.hands import status_of
from tests.operations.hands import carry_on, failed
from tests.web.strangers import Caller

PATH = "/api/v1/operations"


def test_an_operation_is_begun_shown_carried_on_and_canceled(conn: redis.Redis) -> None:
    failed(conn, 3)
    caller = Caller(conn)
    would = caller.ask("POST", PATH, {"action": "requeue", "query": "state:failed", "dry_run": True})
    assert (would.status, would.json["matched"], len(would.json["examples"])) == (200, 3, 3)
    assert would.json["by"] == [{"queue": "q", "state": "failed", "count": 3}]
    assert conn.zcard("rq:operations") == 0
    conn.delete("rq:fleet")
    begun = caller.ask("POST", PATH, {"action": "requeue", "query": "state:failed"})
    assert (begun.status, begun.json["status"], begun.json["matched"]) == (202, "running", 3)
    assert begun.json["carried_on"] is False, "nobody lives to do it"
    carry_on(conn, begun.json["id"])
    shown = caller.ask("GET", f"{PATH}/{begun.json['id']}").json
    assert (shown["status"], shown["done"], shown["skipped"], shown["refused"]) == ("done", 3, 0, 0)
    assert caller.ask("POST", f"{PATH}/{begun.json['id']}/cancel").code == "wrong_state"
    other = caller.ask("POST", PATH, {"action": "reprioritise", "query": "queue:q", "priority": "high"}).json["id"]
    assert caller.ask("POST", f"{PATH}/{other}/cancel").json["status"] == "canceled"
    assert [one["id"] for one in caller.ask("GET", PATH).json["operations"]] == [other, begun.json["id"]]


def test_what_can_not_be_begun_is_refused_with_the_fix(conn: redis.Redis) -> None:
    caller = Caller(conn)
    for body, code, field in (
        ({"action": "requeue", "query": "state:queued"}, "invalid_query", "query"),
        ({"action": "requeue", "query": ""}, "invalid_query", "query"),
        ({"action": "requeue", "query": "stat:failed"}, "invalid_query", "query"),
        ({"action": "explode", "query": "queue:q"}, "invalid_value", "action"),
        ({"action": "quarantine", "query": "queue:q"}, "invalid_value", "reason"),
        ({"action": "reprioritise", "query": "queue:q", "priority": 256}, "invalid_value", "priority"),
        ({"action": "requeue", "query": "queue:q", "priority": 1}, "invalid_value", "priority"),
        ({"action": "requeue", "query": "queue:q", "dry_run": 1}, "invalid_value", "dry_run"),
        ({"action": "requeue", "query": "queue:q", "hurry": 1}, "invalid_value", "hurry"),
    ):
        answer = caller.ask("POST", PATH, body)
        assert (answer.status, answer.code, answer.json["error"]["field"]) == (422, code, field), answer.body


def test_a_token_for_some_queues_changes_and_sees_only_theirs(conn: redis.Redis) -> None:
    failed(conn, 3, "sms", "s")
    failed(conn, 3, "other", "o")
    own = Caller(conn, Scope(("sms",)))
    would = own.ask("POST", PATH, {"action": "requeue", "query": "state:failed", "dry_run": True}).json
    assert (would["matched"], {part["queue"] for part in would["by"]}) == (3, {"sms"})
    begun = own.ask("POST", PATH, {"action": "requeue", "query": "state:failed"}).json["id"]
    carry_on(conn, begun)
    assert [status_of(conn, f"{mark}1") for mark in "so"] == ["queued", "failed"]
    others = Broker(conn)
    others.open_operation("all", {"action": "requeue", "query": "state:failed", "states": "failed"})
    assert [one["id"] for one in own.ask("GET", PATH).json["operations"]] == [begun]
    assert own.ask("GET", f"{PATH}/all").status == own.ask("POST", f"{PATH}/all/cancel").status == 404
    assert own.ask("GET", f"{PATH}/{begun}").json["done"] == 3
    assert Caller(conn, Scope(("mail",))).ask("GET", f"{PATH}/{begun}").status == 404
