"""Failed jobs by what went wrong, over HTTP."""

from __future__ import annotations

import time

import redis

from fusion.jobs.failure_groups import group_id
from fusion.kernel.scope import Scope
from fusion.store.write.broker import Broker
from tests.kit.hands import Hand, put
from tests.web.strangers import Caller

GROUP = group_id("app.Refused", "app.orders:send")
SECRET = "app.Refused: +4915112345678 at https://u:pw@sms.example.com/send?token=abc, password=hunter2"


def fail(conn: redis.Redis, queue: str, *ids: str, reason: str = SECRET, kind: str = "app.Refused") -> None:
    hand = Hand(Broker(conn), queue, name=f"{queue}.{ids[0]}")
    for job_id in ids:
        put(hand.broker, queue, job_id)
        hand.tell(hand.take(), "failed", reason=reason, fields={"error_class": kind, "error_frame": "app.orders:send:7"})
        time.sleep(0.002)  # of two that fail within a millisecond the id decides which is newer


def test_groups_and_one_of_them(conn: redis.Redis) -> None:
    fail(conn, "sms", "s1", "s2", "s3")
    fail(conn, "email", "e1")
    fail(conn, "email", "k1", kind="builtins.KeyError", reason="KeyError: 'x'")
    caller, sms_only = Caller(conn), Caller(conn, Scope(("sms",)))
    before = caller.ask("GET", "/api/v1/failures").json
    assert not Broker(conn).clean()
    shown = caller.ask("GET", "/api/v1/failures").json
    assert (shown["total"], shown["offset"], shown["complete"]) == (2, 0, True)
    assert [one["error_class"] for one in shown["groups"]] == ["builtins.KeyError", "app.Refused"]
    clocks = ("first_seen", "last_seen")
    assert [{k: v for k, v in one.items() if k not in clocks} for one in before["groups"]] == [
        {k: v for k, v in one.items() if k not in clocks} for one in shown["groups"]
    ], "before every job had its group the jobs told the same"
    refused = shown["groups"][1]
    assert refused == refused | {
        "id": GROUP,
        "error_frame": "app.orders:send:7",
        "frame": "app.orders:send",
        "count": 4,
        "total": 4,
        "last_hour": 4,
        "last_day": 4,
        "queues": {"sms": 3, "email": 1},
        "example": "e1",
        "hours": [0] * 23 + [4],
        "trend": [0] * 95 + [4],
    }
    assert not [part for part in ("4915112345678", "u:pw", "abc", "hunter2") if part in str(shown)]

    one = caller.ask("GET", f"/api/v1/failures/{GROUP}?limit=2&offset=1").json
    assert one["jobs"] == ["s3", "s2"]
    assert sum(minute["failed"] for minute in one["minutes"]) == 4
    (mine,) = sms_only.ask("GET", "/api/v1/failures").json["groups"]
    assert (mine["id"], mine["count"], mine["queues"], mine["example"]) == (GROUP, 3, {"sms": 3}, "s3")
    assert sms_only.ask("GET", f"/api/v1/failures/{GROUP}").json["jobs"] == ["s3", "s2", "s1"]

    Broker(conn).requeue(["s1", "s2", "s3", "e1"], "n")
    left = caller.ask("GET", f"/api/v1/failures/{GROUP}").json
    assert (left["count"], left["total"], left["last_hour"], left["jobs"], left["example"]) == (0, 4, 4, [], None)
    assert sms_only.ask("GET", "/api/v1/failures").json["groups"] == []
    assert sms_only.ask("GET", f"/api/v1/failures/{GROUP}").json["error"]["code"] == "no_such_group"


def test_since(conn: redis.Redis) -> None:
    fail(conn, "sms", "a")
    Broker(conn).clean()
    caller = Caller(conn)
    for since, count in (("1h", 1), ("0s", 0), ("2020-01-01T00:00Z", 1), ("2100-01-01T00:00Z", 0)):
        shown = caller.ask("GET", f"/api/v1/failures?since={since}").json
        assert (shown["total"], len(shown["groups"])) == (count, count), since
    for wrong in ("soon", "2020-01-01T00:00"):
        answer = caller.ask("GET", f"/api/v1/failures?since={wrong}")
        assert (answer.status, answer.json["error"]["field"]) == (422, "since")


def test_no_such_group(conn: redis.Redis) -> None:
    answer = Caller(conn).ask("GET", "/api/v1/failures/000000000000")
    assert (answer.status, answer.code) == (404, "no_such_group")
