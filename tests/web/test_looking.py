"""`GET` of jobs and queues: what is shown, and what never is."""

from __future__ import annotations

import json
import secrets
from typing import Any

import pytest
import redis

from fusion import Job, Queue
from fusion.store.layout.history import MOST_NAMES
from fusion.store.write.broker import Broker
from fusion.views.job_parts import CUT
from tests.kit.hands import Hand, put
from tests.web.conftest import Fail
from tests.web.harness import Answer, ServerProcess, Tokens

ECHO = "tests.jobs.basic.echo"
CANARY = f"S3CR3T-{secrets.token_hex(8)}"


def _get(service: ServerProcess, tokens: Tokens, path: str, scope: str = "read") -> Answer:
    return service.ask("GET", path, token=tokens.by_scope[scope])


def _finish(conn: redis.Redis, job_id: str, result: str | bytes) -> None:
    Queue("sms", conn).enqueue(ECHO, CANARY, job_id=job_id, log_tag="SMS_OTP", description=f"echo({CANARY})", meta={"k": CANARY})
    hand = Hand(Broker(conn), "sms", name=job_id)
    hand.tell(hand.take(), fields={"result": result})


def test_a_code_in_the_reason_of_blocked_and_scheduled_jobs_is_not_shown(
    service: ServerProcess, tokens: Tokens, conn: redis.Redis
) -> None:
    put(Broker(conn), "sms", "a", "late")
    hand, why = Hand(Broker(conn), "sms"), f"ImportError: your OTP is 482913, password={CANARY}"
    hand.tell(hand.take(), "held", reason=why, fields={"task": "shop.f"})
    hand.tell(hand.take(), "later", reason=why, delay=100.0)
    for path in ("/api/v1/info", "/api/v1/doctor", "/api/v1/scheduled", "/api/v1/jobs/a"):
        answer = _get(service, tokens, path, "operate")
        assert "your OTP is ******, password=***" in json.dumps(answer.json), path
        assert CANARY not in json.dumps(answer.json), path


def test_of_the_jobs_that_run_those_that_run_longest_are_shown_and_all_are_counted(
    service: ServerProcess, tokens: Tokens, conn: redis.Redis
) -> None:
    broker = Broker(conn)
    for queue, names in {"sms": "abc", "mail": "de"}.items():
        put(broker, queue, *names)
        Hand(broker, queue, name=queue).claim(len(names))
    for name, minute in zip("abcde", (3, 1, 5, 2, 4), strict=True):
        conn.hset(f"rq:job:{name}", "started_at", f"2026-01-01T00:0{minute}:00.000000Z")
    shown = _get(service, tokens, "/api/v1/running?limit=3").json
    assert (shown["total"], [one["id"] for one in shown["running"]]) == (5, ["b", "d", "a"])
    assert [one["id"] for one in _get(service, tokens, "/api/v1/running").json["running"]] == ["b", "d", "a", "e", "c"]
    assert _get(service, tokens, "/api/v1/running?limit=0").json["running"] == []
    assert _get(service, tokens, "/api/v1/running?limit=1001").status == 422


@pytest.mark.parametrize("listed", [r'["\ud800"]', "5", "{"])
def test_a_job_is_shown_whatever_another_program_wrote_as_its_parents(
    service: ServerProcess, tokens: Tokens, conn: redis.Redis, listed: str
) -> None:
    put(Broker(conn), "sms", "a")
    conn.hset("rq:job:a", "parents", listed)
    for path in ("/api/v1/jobs/a", "/api/v1/jobs/a/tree", "/api/v1/jobs"):
        assert _get(service, tokens, path).status == 200, path


def test_a_finished_job(service: ServerProcess, tokens: Tokens, conn: redis.Redis) -> None:
    _finish(conn, "a", json.dumps(CANARY))
    answer = _get(service, tokens, "/api/v1/jobs/a")
    job = Job.fetch("a", conn)
    expected = {
        "id": "a", "status": "finished", "queue": "sms", "original_queue": "sms", "priority": 1, "log_tag": "SMS_OTP", "attempts": 0,
        "lost": 0, "deliveries": 1, "retry_count": 7, "worker": "a", "quarantined": False, "error": None, "progress": None, "scheduled_at": None,
        "concurrency_key": None,
    }  # fmt: skip
    shown = answer.json
    assert {name: shown[name] for name in expected} == expected
    for name in ("created_at", "started_at", "ended_at"):
        assert shown[name] == conn.hget("rq:job:a", name).decode()
    assert shown["enqueued_at"] == shown["created_at"]
    assert set(shown) == {
        *expected, "created_at", "enqueued_at", "started_at", "ended_at", "function", "last_updated", "state_since", "waits", "run", "timeline",
        "tries", "retry", "limits", "fair_key", "unique", "parents", "children", "batch", "in_chain", "cron",
        "failure_group", "copied_from", "copied_to", "replaces",
        "replaced_by", "times", "callbacks", "signature", "size", "events",
    }  # fmt: skip
    assert job.result == CANARY
    assert CANARY.encode() not in answer.body


def test_a_failed_job_shows_class_and_place_and_not_what_it_said(service: ServerProcess, tokens: Tokens, fail: Fail) -> None:
    fail("a", args=(CANARY,), reason=f"ValueError: {CANARY}")
    answer = _get(service, tokens, "/api/v1/jobs/a", "admin")
    assert answer.json["error"] == {"class": "builtins.ValueError", "at": "tests.jobs.basic:boom:49"}
    assert (answer.json["status"], answer.json["attempts"]) == ("failed", 1)
    assert CANARY.encode() not in answer.body
    said = _get(service, tokens, "/api/v1/jobs/a?include=result", "operate").json
    assert said["reason"] == {"text": f"ValueError: {CANARY}", "bytes": 12 + len(CANARY), "cut": False}
    assert said["result"] is None


@pytest.mark.parametrize("size", [CUT - 1, CUT, CUT + 1, 100_000])
def test_a_result_is_shown_to_operators_and_cut(service: ServerProcess, tokens: Tokens, conn: redis.Redis, size: int) -> None:
    raw = json.dumps("x" * (size - 2))
    _finish(conn, "a", raw)
    refused = _get(service, tokens, "/api/v1/jobs/a?include=result", "read")
    assert (refused.status, refused.code) == (403, "missing_scope")
    shown = _get(service, tokens, "/api/v1/jobs/a?include=result", "operate").json["result"]
    assert shown == {"text": raw[:CUT], "bytes": size, "cut": size > CUT}


HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=1>', "{{7*7}}", "\u2028\u202e", "\x1b[2J", "x" * 1_000_000]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_job_data_stays_data(service: ServerProcess, tokens: Tokens, conn: redis.Redis, text: str) -> None:
    """What others wrote into a record is shown as text, and cut."""
    _finish(conn, "a", text.encode())
    for name in ("log_tag", "worker_name", "error_class", "error_frame", "reason", "origin", "original_queue"):
        conn.hset("rq:job:a", name, text)
    answer = _get(service, tokens, "/api/v1/jobs/a?include=result", "operate")
    assert (answer.status, answer.json["log_tag"]) == (200, text)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.body.isascii()


def test_a_record_of_garbage_is_shown_and_a_pickle_is_not_loaded(
    service: ServerProcess, tokens: Tokens, conn: redis.Redis, tmp_path: Any
) -> None:
    touched = tmp_path / "touched"
    bomb = b"cposix\nsystem\n(S'touch " + str(touched).encode() + b"'\ntR."
    garbage = dict.fromkeys(["priority", "attempts", "created_at", "started_at", "retryCount", "meta", "history"], b"\xff\xfe")
    conn.hset("rq:job:a", mapping={**garbage, "status": b"\xff", "serializer": "pickle", "data": bomb, "result": bomb})
    answer = _get(service, tokens, "/api/v1/jobs/a?include=result", "operate")
    assert answer.status == 200
    assert answer.json["created_at"] is None
    assert not touched.exists()


@pytest.mark.parametrize("path", ["nobody", "a%20b", "a%0d%0aX-Injected:%20b", "%00", "%ff", "a:b", "x" * 129])
def test_what_is_no_job(service: ServerProcess, tokens: Tokens, path: str) -> None:
    answer = _get(service, tokens, f"/api/v1/jobs/{path}")
    assert (answer.status, answer.code) == (404, "no_such_job")
    assert "x-injected" not in answer.headers


@pytest.mark.parametrize("query", ["include=args", "include=result,data", "include=%0d%0a"])
def test_nothing_else_can_be_included(service: ServerProcess, tokens: Tokens, conn: redis.Redis, query: str) -> None:
    _finish(conn, "a", "1")
    answer = _get(service, tokens, f"/api/v1/jobs/a?{query}", "admin")
    assert (answer.status, answer.json["error"]["field"]) == (422, "include")
    assert CANARY.encode() not in answer.body


def test_a_query_of_too_many_fields(service: ServerProcess, tokens: Tokens) -> None:
    assert _get(service, tokens, "/api/v1/queues?" + "limit=1&" * 19 + "offset=0").status == 200
    assert _get(service, tokens, "/api/v1/queues?" + "limit=1&" * 20 + "offset=0").code == "bad_query"


# -- queues


def test_a_queue_is_told_by_its_figures(service: ServerProcess, tokens: Tokens, conn: redis.Redis) -> None:
    broker = Broker(conn)
    for priority, count in ((0, 3), (1, 2), (2, 1), (7, 1)):
        put(broker, "sms", *(f"p{priority}-{n}" for n in range(count)), priority=priority)
    Hand(broker, "sms").claim(1)
    broker.cancel("p0-2")
    broker.pause("sms", 60, by="billing", reason="the provider is down")
    broker.set_gate("sms", {"max_length": 100, "timeout": 5000, "limit": 20, "rate": "100/60000/5"})
    shown = _get(service, tokens, "/api/v1/queues/sms/stats").json
    updated, pause, age = shown.pop("last_updated"), shown.pop("pause"), shown.pop("oldest_age")
    assert 0 < age < 60
    assert (pause.pop("by"), pause.pop("reason")) == ("billing", "the provider is down")
    assert shown["oldest_enqueued_at"] < pause.pop("since") <= updated < pause.pop("until")
    assert pause == {}
    assert shown == {
        "name": "sms",
        "queue_length": 5,
        "queued_count": 5,
        "active_count": 1,
        "max_concurrent": 20,
        "rate": "100/60s",
        "burst": 5,
        "rate_limited": False,
        "held_back_until": None,
        "max_wait": None,
        "oldest_enqueued_at": conn.hget("rq:job:p0-0", "created_at").decode(),
        "oldest_by_priority": {
            name: conn.hget(f"rq:job:{job}", "created_at").decode()
            for name, job in (("high", "p2-0"), ("moderate", "p1-0"), ("low", "p0-0"))
        },
        "by_priority": {"high": 1, "moderate": 2, "low": 2},
        "inbox": 0,
        "finished_count": 0,
        "deferred_count": 0,
        "canceled_count": 1,
        "stopped_count": 0,
        "blocked_count": 0,
        "rq_count": None,
        "totals_by_priority": {"low": {"enqueued": 3, "canceled": 1}, "moderate": {"enqueued": 2}, "high": {"enqueued": 2}},
        "paused": True,
        "max_queue_length": 100,
        "queue_timeout": 5.0,
        "problem": None,
        **_counters(enqueued=7, canceled=1),
    }
    assert updated > shown["oldest_enqueued_at"]


def test_queues_come_by_page(service: ServerProcess, tokens: Tokens, conn: redis.Redis) -> None:
    for number in range(5):
        put(Broker(conn), f"q{number}", f"j{number}")
    every = _get(service, tokens, "/api/v1/queues").json
    assert ([queue["name"] for queue in every["queues"]], every["total"], every["offset"]) == ([f"q{n}" for n in range(5)], 5, 0)
    page = _get(service, tokens, "/api/v1/queues?offset=1&limit=2").json
    assert ([queue["name"] for queue in page["queues"]], page["total"], page["offset"]) == (["q1", "q2"], 5, 1)
    assert _get(service, tokens, "/api/v1/queues?offset=9").json["queues"] == []
    alone = _get(service, tokens, "/api/v1/queues/q0/stats").json
    listed = every["queues"][0]
    assert listed.pop("per_minute") is None, "nobody has sampled it"
    counted = {**_counters(enqueued=1), "totals_by_priority": {"moderate": {"enqueued": 1}}}
    assert {**listed, **counted, "last_updated": alone["last_updated"], "oldest_age": alone["oldest_age"]} == alone


def _counters(**counted: int) -> dict[str, int]:
    names = ("enqueued", "requeued", "completed", "failed", "expired", "discarded", "canceled", "stopped", "deleted")
    return {f"total_{name}": counted.get(name, 0) for name in names}


def test_the_history_of_a_queue(service: ServerProcess, tokens: Tokens, conn: redis.Redis) -> None:
    put(Broker(conn), "sms", "a")
    Broker(conn).note_history("host.1", 1, {("queue", "sms"): [(0, "2:completed", 3), (0, "2:r0", 3)]})
    shown = _get(service, tokens, "/api/v1/queues/sms/stats?since=1h").json
    assert [step["completed"] for step in shown["history"]] == [3]
    assert 0 < shown["seconds"]["high"]["run"]["p99"] <= 0.01
    assert _get(service, tokens, "/api/v1/queues/sms/stats?since=soon").status == 422


def test_functions_without_a_history_of_their_own_are_shown_together(
    service: ServerProcess, tokens: Tokens, conn: redis.Redis
) -> None:
    broker, rows = Broker(conn), [(0, "1:completed", 3), (0, "1:r0", 3)]
    broker.note_history("host.1", 1, {("function", f"t.f{number}"): rows for number in range(MOST_NAMES)})
    found = _get(service, tokens, "/api/v1/functions?limit=200").json
    assert (len(found["functions"]), found["total"], found["left_out"]) == (MOST_NAMES, MOST_NAMES, None)
    broker.note_history("host.1", 2, {("function", f"t.g{number}"): rows for number in range(2)})
    found = _get(service, tokens, "/api/v1/functions?limit=1&offset=9").json
    assert (len(found["functions"]), found["total"]) == (1, MOST_NAMES)
    assert found["left_out"]["function"] == "(other)" and found["left_out"]["completed"] == 6


def test_the_most_of_a_run_of_a_function(service: ServerProcess, tokens: Tokens, conn: redis.Redis) -> None:
    rows = [(0, "1:completed", 3), (0, "1:r9", 3), (0, "slowest", 7400), (60, "peak", 4096)]
    Broker(conn).note_history("host.1", 1, {("function", "t.f"): rows})
    one = _get(service, tokens, "/api/v1/functions/t.f?since=1h").json
    (listed,) = _get(service, tokens, "/api/v1/functions").json["functions"]
    for shown in (one, listed):
        assert (shown["slowest_run"], shown["peak_memory"]) == (7.4, 4096)
        assert shown["peak_memory_at"] < shown["slowest_run_at"] <= one["history"][0]["at"]


@pytest.mark.parametrize(("query", "status"), [("limit=999", 200), ("limit=1000", 200), ("limit=1001", 422), ("limit=0", 200)])
def test_the_limit_of_a_page(service: ServerProcess, tokens: Tokens, query: str, status: int) -> None:
    assert _get(service, tokens, f"/api/v1/queues?{query}").status == status


@pytest.mark.parametrize(
    "query", ["limit=-1", "limit=x", "offset=-1", "offset=1e3", "limit=", "offset=\u0661", "offset=" + "9" * 30]
)
def test_what_is_no_page(service: ServerProcess, tokens: Tokens, query: str) -> None:
    answer = _get(service, tokens, "/api/v1/queues?" + query.replace("\u0661", "%D9%A1"))
    assert (answer.status, answer.json["error"]["field"]) == (422, query.partition("=")[0])


@pytest.mark.parametrize("name", ["nothing", "failed", "_x", "a%0d%0ab", "%00", "a%20b"])
def test_what_is_no_queue(service: ServerProcess, tokens: Tokens, conn: redis.Redis, name: str) -> None:
    put(Broker(conn), "sms", "j")
    answer = _get(service, tokens, f"/api/v1/queues/{name}/stats")
    assert (answer.status, answer.code) == (404, "no_such_queue")


def test_a_broken_queue_hides_no_other(service: ServerProcess, tokens: Tokens, conn: redis.Redis) -> None:
    put(Broker(conn), "good", "a")
    put(Broker(conn), "broken", "b")
    conn.set("rq:queue:broken", "a text")
    shown = {queue["name"]: queue for queue in _get(service, tokens, "/api/v1/queues").json["queues"]}
    assert shown["good"]["queue_length"] == 1
    assert "WRONGTYPE" in shown["broken"]["problem"]


#: Key -> its type.
KEYS = {"rq:queues": "a set", "rq:fifos": "a set", "rq:scheduler:scheduled_jobs": "a sorted set", "rq:job:a": "a hash",
        "rq:wip:sms": "a sorted set", "rq:fifo:sms": "a sorted set", "rq:inbox:scheduler": "a sorted set"}  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_a_key_of_a_wrong_type_hides_nothing_but_itself(
    service: ServerProcess, tokens: Tokens, conn: redis.Redis, key: str
) -> None:
    Queue("sms", conn).enqueue(ECHO, job_id="a")
    Queue("sms", conn).enqueue_in(60, ECHO, job_id="later")
    Queue("email", conn).enqueue(ECHO, job_id="b")
    conn.sadd("rq:queues", "rq:queue:scheduler")
    conn.delete(key)
    conn.set(key, "theirs")
    sentence = f"{key} should be {KEYS[key]} and is something else"
    every = _get(service, tokens, "/api/v1/queues")
    assert every.status == 200
    shown = {queue["name"]: queue for queue in every.json["queues"]}
    if key == "rq:queues":
        assert (shown, every.json["broken"]) == ({}, [sentence])
    else:
        assert (set(shown), shown["email"]["queue_length"]) == ({"sms", "email", "scheduler"}, 1)
    told = {"/api/v1/jobs/a": "rq:job:a", "/api/v1/queues/sms/stats": "rq:queues", "/api/v1/queues/none/stats": "rq:queues"}
    for path, needs in told.items():
        answer = _get(service, tokens, path)
        if key == needs:
            assert (answer.status, answer.code) == (500, "broken_key")
            assert sentence in answer.json["error"]["message"]
        else:
            assert answer.status == (404 if "none" in path else 200)
    assert _get(service, tokens, "/api/v1/jobs/later").status == 200
    assert _get(service, tokens, "/api/v1/jobs/gone").status == 404


def test_sound_keys_are_not_called_broken(service: ServerProcess, tokens: Tokens, conn: redis.Redis) -> None:
    put(Broker(conn), "sms", "a")
    assert _get(service, tokens, "/api/v1/queues").json["broken"] == []


def test_what_a_callback_raised_is_shown_to_operators(service: ServerProcess, tokens: Tokens, conn: redis.Redis) -> None:
    put(Broker(conn), "sms", "a")
    hand = Hand(Broker(conn), "sms")
    hand.tell(hand.take(), fields={"callback_error": f"on_success: KeyError: {CANARY}"})
    assert CANARY.encode() not in _get(service, tokens, "/api/v1/jobs/a", "admin").body
    shown = _get(service, tokens, "/api/v1/jobs/a?include=result", "operate").json
    assert shown["callback_error"]["text"] == f"on_success: KeyError: {CANARY}"


# -- pauses


def _post(service: ServerProcess, tokens: Tokens, what: str, body: Any = None, queue: str = "sms") -> Answer:
    return service.ask("POST", f"/api/v1/queues/{queue}/{what}", body, token=tokens.by_scope["admin"])


def test_a_queue_is_paused_for_a_while_and_resumed(service: ServerProcess, tokens: Tokens, conn: redis.Redis) -> None:
    put(Broker(conn), "sms", "a")
    assert _post(service, tokens, "resume").json == {"name": "sms", "paused": False, "was": None}
    shown = _post(service, tokens, "pause", {"duration": "10m", "reason": "the provider is down"})
    assert (shown.status, shown.json["paused"]) == (200, True)
    assert (shown.json["pause"]["by"], shown.json["pause"]["reason"]) == ("adminer", "the provider is down")
    assert 590 < conn.ttl("rq:paused:sms") <= 600
    assert Hand(Broker(conn), "sms").claim() == []
    was = _post(service, tokens, "resume").json["was"]
    assert {name: was[name] for name in ("since", "by", "reason")} == {
        name: shown.json["pause"][name] for name in ("since", "by", "reason")
    }
    assert not conn.exists("rq:paused:sms")
    for_good = _post(service, tokens, "pause", {}).json["pause"]
    assert (for_good["until"], for_good["reason"]) == (None, None)


@pytest.mark.parametrize(
    ("body", "field"),
    [({"duration": 0}, "duration"), ({"duration": "soon"}, "duration"), ({"reason": "a\nb"}, "reason"), ({"why": "x"}, "why")],
)
def test_what_is_no_pause(service: ServerProcess, tokens: Tokens, conn: redis.Redis, body: Any, field: str) -> None:
    put(Broker(conn), "sms", "a")
    answer = _post(service, tokens, "pause", body)
    assert (answer.status, answer.json["error"]["field"]) == (422, field)
    assert not conn.exists("rq:paused:sms")
    assert _post(service, tokens, "pause", {}, queue="sma").code == "no_such_queue"


def test_the_log_of_a_job_is_for_operators(service: ServerProcess, tokens: Tokens, conn: redis.Redis) -> None:
    _finish(conn, "a", b"1")
    path = "/api/v1/jobs/a?include=log"
    assert _get(service, tokens, path, "operate").json["log"] is None
    now = int(conn.time()[0]) * 1000
    conn.hset("rq:log:a", mapping={"lines": f"{now} one\n{now + 1} <b>two", "left_out": 3, "attempt": 2, "at": now + 1000})
    refused = _get(service, tokens, path, "read")
    assert (refused.status, refused.code) == (403, "missing_scope")
    log = _get(service, tokens, path, "operate").json["log"]
    assert ([line["text"] for line in log["lines"]], log["left_out"], log["attempt"]) == (["one", "<b>two"], 3, 2)
    assert "log" not in _get(service, tokens, "/api/v1/jobs/a", "operate").json
    conn.hset("rq:log:a", "at", 1000)
    assert _get(service, tokens, path, "operate").json["log"] is None, "of a former job of this id"
    conn.delete("rq:log:a")
    conn.set("rq:log:a", "no hash")
    assert _get(service, tokens, path, "operate").json["log"] is None
