"""`POST /api/v1/jobs`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import redis

from fusion import Job, Queue
from fusion.kernel import defaults
from fusion.kernel.timeutil import from_iso
from fusion.retry import Retry
from fusion.web.exchange import MAX_BODY
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import drain, everything
from tests.web.conftest import Fail, Start
from tests.web.harness import Answer, ServerProcess, Tokens

NOOP = "tests.jobs.basic.noop"
Post = Callable[..., Answer]


@pytest.fixture
def post(service: ServerProcess, tokens: Tokens) -> Post:
    """`post({...}, key="k")`: to the path of jobs, with an operator's token."""

    def send(body: Any, *, path: str = "/api/v1/jobs", key: str = "", scope: str = "operate", **headers: str) -> Answer:
        more = {"Idempotency-Key": key} if key else {}
        return service.ask("POST", path, body, token=tokens.by_scope[scope], headers={**more, **headers})

    return send


def test_a_job_is_enqueued_as_it_was_asked_for(post: Post, service: ServerProcess, tokens: Tokens, conn: redis.Redis) -> None:
    given = {"priority": "high", "timeout": "2m", "result_ttl": 60, "ttl": "5m", "failure_ttl": 3600, "description": "a text"}
    more = {"log_tag": "SMS_OTP", "job_id": "otp-1", "retry_max": 2, "retry_interval": [5, "1m"], "at_front": True}
    answer = post({"queue": "sms", "func": NOOP, "args": [1, {"to": "x"}], "kwargs": {"k": None}, **given, **more})
    assert answer.status == 201
    assert answer.headers["location"] == "/api/v1/jobs/otp-1"
    job = Job.fetch("otp-1", conn)
    assert answer.json == {
        "job_id": "otp-1",
        "status": "queued",
        "queue": "sms",
        "priority": 2,
        "created_at": conn.hget("rq:job:otp-1", "created_at").decode(),
    }
    assert (job.func_name, job.args, job.kwargs) == (NOOP, (1, {"to": "x"}), {"k": None})
    assert (job.priority, job.timeout, job.result_ttl, job.log_tag, job.description) == (2, 120, 60, "SMS_OTP", "a text")
    assert job.retry == Retry(2, [5, 60])
    assert (conn.hget("rq:job:otp-1", "ttl"), conn.hget("rq:job:otp-1", "failure_ttl")) == (b"300", b"3600")
    assert int(conn.hget("rq:job:otp-1", "seq")) < 0
    shown = service.ask("GET", answer.headers["location"], token=tokens.by_scope["read"])
    assert (shown.status, shown.json["status"]) == (200, "queued")
    assert check_conservation(conn, ["otp-1"]) == {"otp-1": "queued"}


def test_a_duplicate_is_answered_by_the_job_that_is_there(post: Post, conn: redis.Redis) -> None:
    body = {"func": NOOP, "queue": "sms", "unique_key": "k"}
    first = post({**body, "job_id": "a", "priority": "low"})
    assert (first.status, "duplicate_of" in first.json) == (201, False)
    answer = post(body)
    assert (answer.status, answer.headers["location"]) == (200, "/api/v1/jobs/a")
    assert answer.json == {**first.json, "duplicate_of": "a"}
    answer = post({**body, "on_duplicate": "raise"}, key="once")
    assert (answer.status, answer.json["error"]["code"]) == (409, "duplicate_job")
    assert "job 'a' has the unique key 'k' and is queued" in answer.json["error"]["message"]
    answer = post({**body, "job_id": "b", "on_duplicate": "replace", "enqueue_in": "5m", "max_delay": "1m"})
    assert (answer.status, answer.json["job_id"], answer.json["duplicate_of"]) == (201, "b", "a")
    assert answer.json["status"] == "scheduled"
    post({"func": NOOP, "unique_key": "gone", "job_id": "g", "unique_until": "accept", "unique_window": 60})
    conn.delete("rq:job:g")
    answer = post({"func": NOOP, "unique_key": "gone"})
    assert (answer.status, answer.json["job_id"], answer.json["status"]) == (200, "g", "gone")


def test_the_options_that_python_has_come_over_http_too(post: Post, conn: redis.Redis) -> None:
    urls = {name: f"https://hooks.example.com/{name}" for name in ("success_task_handler", "failed_task_handler", "callback_url")}
    more = {"meta": {"order": [4711]}, "on_lost": "fail", "isolate": True, "durability": "primary", "job_id": "j"}
    assert post({"func": NOOP, **urls, **more}).status == 201
    stored = conn.hgetall("rq:job:j")
    assert {name: stored[name.encode()].decode() for name in urls} == urls
    assert (json.loads(stored[b"meta"]), stored[b"on_lost"], stored[b"isolate"]) == ({"order": [4711]}, b"fail", b"1")


def test_enqueue_reports_that_no_replica_acknowledged(post: Post, conn: redis.Redis) -> None:
    for _ in range(2):
        answer = post({"func": NOOP, "durability": "replicated", "replicas": 2, "replicas_timeout": 0.05}, key="k")
        assert (answer.status, answer.code) == (503, "redis_unavailable")
        (job,) = Queue(connection=conn).get_jobs()
        assert job.get_status() == "queued", "it is on the primary"


def test_what_is_left_out_has_its_default(post: Post, conn: redis.Redis) -> None:
    job = Job.fetch(post({"func": NOOP}).json["job_id"], conn)
    assert (job.origin, job.priority, job.args, job.kwargs, job.timeout) == (defaults.QUEUE, 1, (), {}, defaults.JOB_TIMEOUT)
    nulls = dict.fromkeys(["args", "kwargs", "priority", "ttl", "job_id", "enqueue_in", "retry_max"])
    assert post({"func": NOOP, **nulls}).status == 201


def test_later(post: Post, conn: redis.Redis) -> None:
    soon = post({"func": NOOP, "enqueue_in": "5m"}).json
    assert soon["status"] == "scheduled"
    assert from_iso(soon["scheduled_at"]) == from_iso(soon["created_at"]) + timedelta(minutes=5)
    moment = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(hours=1)
    at = post({"func": NOOP, "enqueue_at": moment.isoformat()}).json
    assert (at["status"], from_iso(at["scheduled_at"])) == ("scheduled", moment)
    assert Job.fetch(at["job_id"], conn).scheduled_at() == moment
    assert post({"func": NOOP, "enqueue_at": "2001-01-01T00:00Z"}).json["status"] == "queued"
    check_conservation(conn, [soon["job_id"], at["job_id"]])


BAD: list[tuple[str, Any]] = [
    ("func", None), ("func", 5), ("func", ""), ("func", "noop"), ("func", "tests..noop"), ("func", "tests.__init__.x"), ("func", "a.b\n"),
    ("func", "os.system; x"), ("func", "t\u00e9sts.jobs"), ("queue", "a b"), ("queue", ""), ("queue", None), ("queue", 5), ("queue", "failed"),
    ("queue", "_x"), ("queue", "q\r\nX-A: b"), ("queue", "q\u010a"), ("queue", "q\x00"), ("queue", "x" * 129), ("job_id", "a b"),
    ("job_id", ""), ("job_id", "a\r\nb"), ("job_id", "a\u010ab"), ("job_id", "a\x00"), ("job_id", "x" * 129), ("job_id", 5), ("args", {}),
    ("args", "x"), ("kwargs", []), ("kwargs", "x"), ("priority", -1), ("priority", 256), ("priority", True), ("priority", 1.5),
    ("priority", "highest"), ("timeout", 0), ("timeout", -2), ("timeout", "soon"), ("timeout", True), ("timeout", []), ("timeout", 1e10),
    ("ttl", 0), ("ttl", -1), ("result_ttl", -2), ("failure_ttl", -2), ("description", 5), ("description", "a\nb"), ("description", "x" * 501),
    ("description", "\ud800"), ("description", "\u202e"), ("log_tag", "a\x1b[31m"), ("log_tag", []), ("at_front", 1), ("at_front", "yes"),
    ("enqueue_in", -1), ("enqueue_in", "x"), ("enqueue_in", 1e10), ("enqueue_at", "tomorrow"), ("enqueue_at", "2030-01-01T00:00"),
    ("enqueue_at", 5), ("enqueue_at", "9999-01-01T00:00Z"), ("retry_max", -1), ("retry_max", 1.5), ("retry_max", True), ("retry_max", 1001),
    ("retry_interval", 5), ("nonsense", 1), ("a\r\nb", 1), ("on_success", "os.system"), ("success_task_handler", "http://169.254.169.254/"),
    ("meta", []), ("meta", "x"), ("on_lost", "retry"), ("on_lost", ["fail"]), ("isolate", 1), ("isolate", "yes"), ("durability", "disk"),
    ("durability", 1), ("replicas", 0), ("replicas", 101), ("replicas", "2"), ("replicas", 2), ("replicas_timeout", "soon"),
    ("replicas_timeout", 2), ("on_failure", "os.system"), ("func", "tests." + "a" * 250), ("func", "a." * 33 + "b"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), BAD)
def test_a_bad_value_is_refused_by_name_and_nothing_is_stored(post: Post, conn: redis.Redis, field: str, value: Any) -> None:
    answer = post({"queue": "sms", "func": NOOP, field: value})
    assert (answer.status, answer.code, answer.json["error"]["field"]) == (422, "invalid_value", field)
    assert answer.json["error"]["message"]
    assert conn.dbsize() == 0


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"retry_max": 1, "retry_interval": -1}, "retry_interval"),
        ({"retry_max": 1, "retry_interval": []}, "retry_interval"),
        ({"retry_max": 1, "retry_interval": 1e12}, "retry_interval"),
        ({"timeout": 1e12}, "timeout"),
        ({"ttl": 1e300}, "ttl"),
        ({"enqueue_in": 1e12}, "enqueue_in"),
        ({"enqueue_in": 5, "enqueue_at": "2030-01-01T00:00Z"}, ""),
        ({"payload": {}, "args": []}, "payload"),
        ({"durability": "replicated", "replicas_timeout": 0}, "replicas_timeout"),
        ({"durability": "replicated", "replicas_timeout": "31s"}, "replicas_timeout"),
        ({"durability": "primary", "replicas": 1}, "replicas"),
    ],
)
def test_values_that_do_not_go_together(post: Post, conn: redis.Redis, more: dict[str, Any], field: str) -> None:
    answer = post({"func": NOOP, **more})
    assert (answer.status, answer.json["error"].get("field", "")) == (422, field)
    assert conn.dbsize() == 0


@pytest.mark.parametrize(
    "func", ["os.system", "subprocess.Popen", "tests.jobs.basicx.noop", "tests.jobs.noop", "fusion.cli.main.main"]
)
def test_only_allowed_tasks(post: Post, conn: redis.Redis, func: str) -> None:
    answer = post({"func": func})
    assert (answer.status, answer.code) == (403, "task_not_allowed")
    message = answer.json["error"]["message"]
    assert (
        "part of Python: a task is a function in a module of yours" if func in ("os.system", "subprocess.Popen") else "--tasks"
    ) in message
    assert "--tasks os" not in message
    assert conn.dbsize() == 0


def test_tasks_are_added_on_the_command_line(start: Start, redis_url: str, tokens: Tokens) -> None:
    server = start(redis_url, "--tokens", str(tokens.path), "--tasks", "tests.jobs.plain", env={"FUSION_TASKS": "tasks.sms"})
    asked = {
        name: server.ask("POST", "/api/v1/jobs", {"func": name}, token=tokens.by_scope["operate"]).status
        for name in ("tests.jobs.plain.x", "tasks.sms.sendSMS", "tasks.email.sendEmail", NOOP)
    }
    assert asked == {"tests.jobs.plain.x": 201, "tasks.sms.sendSMS": 201, "tasks.email.sendEmail": 403, NOOP: 403}


def test_a_tagged_value_from_outside_stays_what_it_is(post: Post, conn: redis.Redis) -> None:
    """What tags stand for, classes among them, is for producers in Python."""
    tagged = {"__fusion__": ["enum", ["os.path", "x"]]}
    job_id = post({"func": NOOP, "args": [tagged]}).json["job_id"]
    assert Job.fetch(job_id, conn).args == (tagged,)


# -- the body


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "must be a JSON object"),
        (b"5", "must be a JSON object"),
        (b'{"func": NaN}', "NaN"),
        (b'{"func": Infinity}', "Infinity"),
        (b'{"func": "a.b", "func": "c.d"}', "twice"),
        (b'{"args": [' + b"9" * 5000 + b"]}", "not JSON"),
        (b'{"func": "\xff"}', "not JSON"),
        (b'{"func": "\xc0\x80"}', "not JSON"),
        (b'{"func": "\xed\xa0\x80"}', "not JSON"),
        (b'{"func": "a\x00b"}', "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b"{}{}", "more text"),
        (b'{"args":' * 100_000, "nested deeper"),
    ],
)
def test_what_is_no_good_json(post: Post, conn: redis.Redis, raw: bytes, what: str) -> None:
    answer = post(raw)
    assert (answer.status, answer.code) == (400, "bad_json")
    assert what in answer.json["error"]["message"]
    assert conn.dbsize() == 0


@pytest.mark.parametrize(
    ("depth", "status"), [(defaults.MAX_DEPTH - 1, 201), (defaults.MAX_DEPTH, 201), (defaults.MAX_DEPTH + 1, 400)]
)
def test_the_limit_of_nesting(post: Post, depth: int, status: int) -> None:
    inner = depth - 2  # the object and its list of arguments
    assert post(b'{"func": "%s", "args": [%s%s]}' % (NOOP.encode(), b"[" * inner, b"]" * inner)).status == status


def _padded(size: int) -> bytes:
    body = b'{"func": "%s"}' % NOOP.encode()
    return body + b" " * (size - len(body))


@pytest.mark.parametrize(("size", "status"), [(MAX_BODY - 1, 201), (MAX_BODY, 201), (MAX_BODY + 1, 413), (3 * MAX_BODY, 413)])
@pytest.mark.parametrize("chunked", [False, True])
def test_the_limit_of_a_body_however_it_is_sent(
    service: ServerProcess, tokens: Tokens, size: int, status: int, chunked: bool
) -> None:
    connection = service.connect()
    headers = {"Authorization": f"Bearer {tokens.by_scope['operate']}", "Content-Type": "application/json"}
    body = _padded(size)
    try:
        if chunked:
            parts = (body[n : n + 65536] for n in range(0, size, 65536))
            connection.request("POST", "/api/v1/jobs", parts, headers, encode_chunked=True)
        else:
            connection.request("POST", "/api/v1/jobs", body, headers)
    except (ConnectionResetError, BrokenPipeError):
        assert size == 3 * MAX_BODY, "only what is far too large is cut off while it is sent"
    try:
        response = connection.getresponse()
    except (ConnectionResetError, BrokenPipeError):
        assert size == 3 * MAX_BODY
        return
    assert response.status == status
    if status == 413:
        assert json.loads(response.read())["error"]["code"] == "body_too_large"
    connection.close()


def test_the_limit_of_arguments(post: Post, conn: redis.Redis) -> None:
    room = defaults.MAX_PAYLOAD - len(json.dumps([NOOP, None, [""], {}], separators=(",", ":")))
    for size, status in ((room - 1, 201), (room, 201), (room + 1, 413)):
        answer = post({"func": NOOP, "args": ["x" * size]})
        assert answer.status == status
    assert answer.code == "payload_too_large"
    assert conn.zcard("rq:queue:default") == 2


# -- the same again


def test_a_repetition_is_the_same_job_and_the_same_answer(post: Post, conn: redis.Redis) -> None:
    body = {"queue": "sms", "func": NOOP, "args": [1], "kwargs": {"a": 1, "b": 2}, "enqueue_in": 60}
    first = post(body, key="k")
    before = everything(conn)
    again = post(dict(reversed(body.items())), key="k")
    assert (again.status, again.body, again.headers["location"]) == (201, first.body, first.headers["location"])
    assert everything(conn) == before


def test_a_repetition_after_the_job_has_ended_runs_nothing(post: Post, conn: redis.Redis, fail: Fail) -> None:
    first = post({"func": NOOP}, key="k")
    Job.fetch(first.json["job_id"], conn).cancel()
    before = everything(conn)
    assert post({"func": NOOP}, key="k").body == first.body
    assert everything(conn) == before
    other = post({"func": NOOP, "args": [1]}, key="k")
    assert (other.status, other.code) == (409, "key_reused"), "and what is kept of it is not written over"
    assert everything(conn) == before


def test_two_keys_two_contents_and_two_tokens_are_two_jobs_or_refused(post: Post, conn: redis.Redis) -> None:
    post({"func": NOOP}, key="k")
    assert post({"func": NOOP}, key="other").status == 201
    assert post({"func": NOOP}, key="k", scope="admin").status == 201
    assert post({"func": NOOP}).status == 201
    assert conn.zcard("rq:queue:default") == 4
    other = post({"func": NOOP, "args": [1]}, key="k")
    assert (other.status, other.code) == (409, "key_reused")
    assert conn.zcard("rq:queue:default") == 4


def test_an_id_of_ones_own_with_and_without_a_key(post: Post, conn: redis.Redis) -> None:
    body = {"func": NOOP, "job_id": "mine"}
    first = post(body, key="k")
    assert first.json["job_id"] == "mine"
    assert post(body, key="k").body == first.body
    for key in ("", "other"):
        answer = post(body, key=key)
        assert (answer.status, answer.code) == (409, "duplicate_job")
    assert "is taken and is queued" in answer.json["error"]["message"]
    assert conn.zcard("rq:queue:default") == 1


@pytest.mark.parametrize("key", ["x" * 256, "a\tb", "\u00e9"])
def test_what_is_no_key(post: Post, conn: redis.Redis, key: str) -> None:
    assert post({"func": NOOP}, key=key).code == "bad_key"
    assert conn.dbsize() == 0
    assert post({"func": NOOP}, key="x" * 255).status == 201


def test_many_at_once_with_one_key_make_one_job(post: Post, conn: redis.Redis) -> None:
    barrier, answers = threading.Barrier(8), list[Answer]()

    def send() -> None:
        barrier.wait(10)
        answers.append(post({"queue": "sms", "func": NOOP}, key="once"))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert {(answer.status, answer.body) for answer in answers} == {(201, answers[0].body)}
    assert len(answers) == 8
    assert Queue("sms", conn).get_job_ids() == [answers[0].json["job_id"]]
    assert [event[b"event"] for _, event in conn.xrange("rq:events")] == [b"queued"]


def test_order_and_priority_are_those_of_every_producer(post: Post, conn: redis.Redis) -> None:
    from fusion.store.write.broker import Broker
    from tests.kit.hands import Hand

    for name, priority in (("low", "low"), ("a", 1), ("high", "HIGH"), ("b", "moderate")):
        assert post({"queue": "sms", "func": NOOP, "job_id": name, "priority": priority}).status == 201
    assert drain(Hand(Broker(conn), "sms"), 1) == ["high", "a", "b", "low"]


def test_ids_that_fusion_makes_are_not_for_callers(post: Post, conn: redis.Redis) -> None:
    for job_id in ("cron-e-20300101T000000Z", "idem-0123456789", "cb-1", "corrupt-1"):
        refused = post({"func": NOOP, "job_id": job_id})
        assert (refused.status, refused.json["error"]["field"]) == (422, "job_id")
        assert "are those of" in refused.json["error"]["message"]
    assert not conn.exists("rq:queues")


def test_a_full_queue_is_429_and_the_same_request_is_good_later(post: Post, conn: redis.Redis) -> None:
    Queue("sms").set_max_length(1)
    body = {"queue": "sms", "func": NOOP}
    first = post(body, key="one")
    assert first.status == 201
    before = everything(conn)
    full = post(body, key="two")
    assert (full.status, full.json["error"]["code"], full.headers["retry-after"]) == (429, "queue_full", "5")
    assert full.json["error"]["message"].startswith("queue 'sms' is full: 1 of 1 wait (max_queue_length). Try again")
    assert everything(conn) == before
    assert post(body, key="one").json == first.json, "a resend is none more"
    own = post({**body, "queue": "free", "max_queue_length": 1})
    assert own.status == 201
    assert post({**body, "queue": "free", "max_queue_length": 1}).status == 429
    assert post({**body, "max_queue_length": 0}).status == 422
    Queue("sms").set_max_length(2)
    assert post(body, key="two").status == 201
    assert post(body, path="/retryTask").status == 202, "that one waits for its time"
