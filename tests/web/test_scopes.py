"""Who may see one queue alone learns nothing of any other: every route of the table, with a token for `sms` over a Redis full of another queue's."""

from __future__ import annotations

import csv
import io
import json
from typing import Any, cast

import pytest
import redis

from fusion import Queue
from fusion.jobs.failure_groups import group_id
from fusion.kernel.scope import Scope
from fusion.store.layout.codec import text
from fusion.store.write.broker import Broker
from fusion.web.api import Api
from fusion.web.routing import Route
from tests.kit.hands import Hand
from tests.web.harness import Answer
from tests.web.strangers import MARKER, OWN, TASK, Caller, deliveries, settle, strangers

ROUTES = Api(cast(Any, None), ()).routes()
#: What differs between two looks at the same.
CLOCKS = {
    "oldest_age",
    "last_updated",
    "heartbeat_age",
    "last_heartbeat",
    "next_at",
    "mark",
    "next",
    "coming",
    "declared_at",
    "scheduled_at",
    "since",
    "until",
    "created_at",
    "enqueued_at",
}

#: Of each route that such a token may ask: paths to ask of what is its own, and (path, body) of what is another's. What names a thing that is
#: not there stands as `nobody-...` where the other's has the marker, and must be answered alike.
ROWS: dict[str, tuple[list[str], list[tuple[str, Any]]]] = {
    "retry_task": ([], [("/retryTask/", {"job_id": "zebra-failed"}), ("/retryTask/", {"queue": "zebra", "func": TASK})]),
    "enqueue": (
        [],
        [
            ("/api/v1/jobs", {"queue": "zebra", "func": TASK}),
            ("/api/v1/jobs", {"queue": "sms", "func": TASK, "depends_on": ["zebra-queued"]}),
            ("/api/v1/jobs", {"queue": "sms", "func": TASK, "batch": "zebra-batch"}),
        ],
    ),
    "jobs": ([f"/api/v1/jobs{query}" for query in ("", "?limit=99", "?query=state:failed,scheduled", "?query=key:ours-key", "?format=csv")], []),
    "job": (["/api/v1/jobs/ours-queued", "/api/v1/jobs/ours-failed?include=result"], [("/api/v1/jobs/zebra-failed?include=result", None)]),
    "tree": (["/api/v1/jobs/ours-queued/tree", "/api/v1/jobs/ours-child/tree"], [("/api/v1/jobs/zebra-queued/tree", None)]),
    "stop": ([], [("/api/v1/jobs/zebra-queued/stop", None)]),
    "cancel": ([], [("/api/v1/jobs/zebra-queued/cancel", None)]),
    "copy": ([], [("/api/v1/jobs/zebra-failed/copy", {}), ("/api/v1/jobs/ours-failed/copy", {"queue": "zebra"})]),
    "requeue": ([], [("/api/v1/jobs/zebra-failed/requeue", None)]),
    "reveal": ([], [("/api/v1/jobs/zebra-failed/reveal", None)]),
    "reschedule": ([], [("/api/v1/jobs/zebra-scheduled/reschedule", {"when": "5m"})]),
    "delete": ([], [("/api/v1/jobs/zebra-failed", None)]),
    "openapi": (["/api/v1/openapi.json"], []),
    "trash": (["/api/v1/trash", "/api/v1/trash?limit=1", "/api/v1/trash?format=jsonl"], []),
    "trash_restore": ([], [("/api/v1/trash/zebra-thrown/restore", None)]),
    "audit": (["/api/v1/audit", "/api/v1/audit?limit=1&action=*", "/api/v1/audit?format=csv"], []),
    "queues": ([f"/api/v1/queues{query}" for query in ("", "?format=csv", "?format=jsonl", "?limit=1", "?offset=1")], []),
    "history": (["/api/v1/history", "/api/v1/history?since=2h"], []),
    "running": (["/api/v1/running", "/api/v1/running?limit=1", "/api/v1/running?format=csv"], []),
    "failures": (["/api/v1/failures", "/api/v1/failures?since=1h&limit=1"], []),
    "failure": ([f"/api/v1/failures/{group_id('ours.Error', 'ours.mod:fn')}", f"/api/v1/failures/{group_id('ours.Error', 'ours.mod:fn')}?format=csv"],
                [(f"/api/v1/failures/{group_id('zebra.Error', 'zebra.mod:fn')}", None)]),
    "operation": ([], [("/api/v1/operations", {"action": "requeue", "query": "queue:zebra state:queued"})]),
    "operations": (["/api/v1/operations", "/api/v1/operations?limit=1"], []),
    "operation_show": ([], [("/api/v1/operations/zebra-operation", None)]),
    "operations_cancel": ([], [("/api/v1/operations/zebra-operation/cancel", None)]),
    "stats": (["/api/v1/queues/sms/stats?since=1h"], [("/api/v1/queues/zebra/stats", None)]),
    "queue": (["/api/v1/queues/sms", "/api/v1/queues/sms?since=1d"], [("/api/v1/queues/zebra", None)]),
    "workers": (["/api/v1/workers", "/api/v1/workers?format=csv"], []),
    "worker": (["/api/v1/workers/ours-worker.1"], [("/api/v1/workers/zebra-worker.1", None)]),
    "quiet": ([], [("/api/v1/workers/zebra-worker.1/quiet", None)]),
    "unquiet": ([], [("/api/v1/workers/zebra-worker.1/unquiet", None)]),
    "worker_stop": ([], [("/api/v1/workers/zebra-worker.1/stop", None)]),
    "cron": (["/api/v1/cron", "/api/v1/cron?format=jsonl"], []),
    "cron_entry": (["/api/v1/cron/ours-entry"], [("/api/v1/cron/zebra-entry", None)]),
    "cron_run": ([], [("/api/v1/cron/zebra-entry/run", None)]),
    "cron_pause": ([], [("/api/v1/cron/zebra-entry/pause", None)]),
    "cron_resume": ([], [("/api/v1/cron/zebra-entry/resume", None)]),
    "cron_remove": ([], [("/api/v1/cron/zebra-entry/remove", None)]),
    "callbacks": (["/api/v1/callbacks", "/api/v1/callbacks?status=waiting", "/api/v1/callbacks?format=csv"], []),
    "callback": (["/api/v1/callbacks/OURS"], [("/api/v1/callbacks/DELIVERY", None)]),
    "callbacks_retry": ([], [("/api/v1/callbacks/DELIVERY/retry", None)]),
    "pause": ([], [("/api/v1/queues/zebra/pause", {})]),
    "unpause": ([], [("/api/v1/queues/zebra/resume", None)]),
    "empty": ([], [("/api/v1/queues/zebra/empty", None)]),
}  # fmt: skip


def restricted(conn: redis.Redis) -> Caller:
    return Caller(conn, Scope((OWN, "sms-*")))


def names(route: Route) -> str:
    return f"{route.method} {route.path}"


def timeless(answer: Answer) -> Any:
    """Without what only says when somebody looked."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            clocks = CLOCKS | {"at"} if "last_failed" in value else CLOCKS | {"seconds"} if "started_at" in value else CLOCKS
            found = {name: strip(one) for name, one in value.items() if name not in clocks}
            if isinstance(rows := value.get("history"), list):  # a minute may begin between two looks: rows move on by one
                found["history"] = [strip({**row, "at": None}) for row in rows if row.get("completed") or row.get("failed")]
            return found
        return [strip(one) for one in value] if isinstance(value, list) else value

    return answer.status, [strip(row) for row in rows_of(answer)]


def rows_of(answer: Answer) -> list[Any]:
    """Documents: one, or a file's rows."""
    text = answer.body.decode()
    if answer.headers["content-type"].startswith("text/csv"):
        return list(csv.DictReader(io.StringIO(text)))
    return [json.loads(line) for line in text.splitlines()]


def test_every_route_is_closed_to_a_restricted_token_or_has_a_row() -> None:
    assert {route.action for route in ROUTES if route.by_queue} == set(ROWS)
    assert all(route.by_queue is False for route in ROUTES if route.scope is None)


def test_routes_about_all_queues_are_closed(conn: redis.Redis) -> None:
    strangers(conn)
    caller = restricted(conn)
    for route in ROUTES:
        if route.scope is None or route.by_queue:
            continue
        for there in (MARKER, "nobody"):
            path = route.path.replace("{", there + "-").replace("}", "")
            answer = caller.ask(route.method, path, None if route.method == "GET" else {})
            assert (answer.status, answer.code) == (403, "all_queues"), names(route)
            assert MARKER not in str((answer.headers, answer.body)), names(route)


def test_own_things_look_as_if_nobody_else_were_there(conn: redis.Redis) -> None:
    settle(conn, OWN, "ours")
    caller = restricted(conn)
    (delivery, *_) = deliveries(conn, "ours")
    paths = [path.replace("OURS", delivery) for own, _ in ROWS.values() for path in own]
    alone = {path: timeless(caller.ask("GET", path)) for path in paths}
    strangers(conn)
    for path in paths:
        answer = caller.ask("GET", path)
        assert answer.status == 200, (path, answer.body)
        assert MARKER.encode() not in answer.body, path
        assert MARKER not in str(answer.headers), path
        assert timeless(answer) == alone[path], path


@pytest.mark.parametrize("action", ROWS)
def test_what_is_anothers_is_answered_like_what_is_not_there(conn: redis.Redis, action: str) -> None:
    settle(conn, OWN, "ours")
    strangers(conn)
    caller = restricted(conn)
    method = next(route.method for route in ROUTES if route.action == action)
    (delivery, *_) = deliveries(conn, MARKER)
    for named, body in ROWS[action][1]:
        path = named.replace("DELIVERY", delivery)
        hidden = caller.ask(method, path, body)
        absent = caller.ask(
            method,
            path.replace(MARKER, "nobody").replace(delivery, "cb-1700000000000000-1"),
            json.loads(json.dumps(body).replace(MARKER, "nobody")),
        )
        assert hidden.status in (403, 404, 422), (path, hidden.body)
        assert hidden.body.replace(MARKER.encode(), b"nobody") == absent.body, path
        asked = path + json.dumps(body)
        for name in {name for name in _names(conn) if name not in asked}:
            assert name not in text(hidden.body), (path, name)


def _names(conn: redis.Redis) -> set[str]:
    """All ids of theirs."""
    return {text(key).rpartition(":")[2] for key in conn.scan_iter(f"rq:job:{MARKER}*")}


def test_ids_and_unique_keys_of_others_are_taken_without_a_word_of_whose(conn: redis.Redis) -> None:
    strangers(conn)
    caller = restricted(conn)
    before = {key: conn.hgetall(f"rq:job:{key}") for key in _names(conn)}
    for field, value in (("job_id", "zebra-finished"), ("job_id", "zebra-queued"), ("unique_key", "zebra-unique")):
        for policy in ("skip", "raise", "replace"):
            body = {"queue": OWN, "func": TASK, field: value, "on_duplicate": policy, "unique_key": f"own-{policy}"} | {
                field: value
            }
            answer = caller.ask("POST", "/api/v1/jobs", body)
            assert (answer.status, answer.code, answer.json["error"]["field"]) == (409, "duplicate_job", field), answer
            assert MARKER not in str((answer.headers, answer.body))
    assert {key: conn.hgetall(f"rq:job:{key}") for key in _names(conn)} == before
    assert not conn.exists(f"rq:queue:{OWN}")


@pytest.mark.parametrize("how", ["retryTask", "requeue"])
def test_a_restricted_token_does_not_learn_who_took_a_unique_key(conn: redis.Redis, how: str) -> None:
    Queue(OWN, conn).enqueue(TASK, job_id="mine", unique_key="key")
    hand = Hand(Broker(conn), OWN)
    hand.tell(hand.take(), "failed", reason="so")
    Queue(MARKER, conn).enqueue(TASK, job_id=f"{MARKER}-took-it", unique_key="key")
    path, body = ("/retryTask/", {"job_id": "mine"}) if how == "retryTask" else ("/api/v1/jobs/mine/requeue", None)
    hidden = restricted(conn).ask("POST", path, body)
    assert (hidden.status, hidden.code) == (409, "duplicate_job")
    assert MARKER not in str((hidden.headers, hidden.body))
    shown = Caller(conn).ask("POST", path, body)
    assert (shown.status, shown.code) == (409, "duplicate_job")
    assert f"{MARKER}-took-it" in shown.json["error"]["message"]


def test_a_token_of_all_queues_sees_them(conn: redis.Redis) -> None:
    strangers(conn)
    caller = Caller(conn)
    assert [queue["name"] for queue in caller.ask("GET", "/api/v1/queues").json["queues"]] == [MARKER]
    assert caller.ask("GET", "/api/v1/jobs/zebra-queued").status == 200


def test_wildcards_open_what_they_open_to_workers(conn: redis.Redis) -> None:
    settle(conn, "sms-otp", "otp")
    caller = restricted(conn)
    assert caller.ask("GET", "/api/v1/jobs/otp-queued").json["queue"] == "sms-otp"
    assert caller.ask("POST", "/api/v1/jobs", {"queue": "sms-new", "func": TASK}).status == 201
    assert caller.ask("POST", "/api/v1/jobs", {"queue": "smsx", "func": TASK}).status == 403
    delivery = next(text(key) for key in conn.scan_iter("rq:job:cb-*")).removeprefix("rq:job:")
    assert caller.ask("GET", f"/api/v1/jobs/{delivery}").status == 404, "deliveries are in a queue of Fusion's own"
