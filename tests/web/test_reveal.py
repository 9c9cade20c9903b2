"""`reveal` over HTTP: who sees masked values, what of them, and every way around the rules that is closed."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
import redis

from fusion import Queue, Secret
from fusion.audit import AuditedChange
from fusion.kernel.scope import Scope
from fusion.store.client.connections import connect
from fusion.store.read.audit_inspector import NO_ANSWER, AuditInspector
from fusion.store.write.broker import Broker
from fusion.web.api import Api
from fusion.web.app import App
from fusion.web.auth import ANONYMOUS, no_auth
from fusion.web.cors import Cors
from fusion.web.exchange import Request, Response
from fusion.web.routing import SAFE
from tests.kit.hands import Hand
from tests.web.conftest import Start
from tests.web.harness import SCOPES
from tests.web.strangers import TASK, Caller

#: Words that no answer but one of `reveal` may hold, and one that none may.
CANARY, HIDDEN = "Rosalind-4711-Franklin", "hush-9182-hush"
PATH = "/api/v1/jobs/a/reveal"


def leave(conn: redis.Redis, job_id: str = "a", queue: str = "sms") -> None:
    """A job that has failed, with the canary in all that may be masked, and a secret in much of it."""
    given = {"to": CANARY, "token": Secret(HIDDEN)}
    Queue(queue, conn).enqueue(TASK, given, job_id=job_id, meta={"of": CANARY}, description=f"for {CANARY}")
    hand = Hand(Broker(conn), queue, name=f"hand.{job_id}")
    error = {"exc_info": f"Traceback\n  {CANARY} {HIDDEN}", "error_class": "ValueError", "error_frame": "m:f:1"}
    assert hand.tell(hand.take(), "failed", reason=f"ValueError: {CANARY}", fields=error) == "ok"
    attempt = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T00:00:01Z", "worker": "w", "outcome": "retry"}
    texts = {name: f"{name} {CANARY} {HIDDEN}" for name in ("callback_error", "quarantined", "result_error")}
    history = json.dumps({**attempt, "error": f"{CANARY} {HIDDEN}"})
    returned = json.dumps([CANARY, {"__fusion__": ["secret", HIDDEN]}])
    conn.hset(f"rq:job:{job_id}", mapping={**texts, "result": returned, "history": history, "cursor": json.dumps({"at": CANARY})})


def looks(conn: redis.Redis) -> list[tuple[str, str]]:
    return [(entry.target, entry.outcome) for entry in AuditInspector(conn).entries() if entry.action == "reveal"]


def test_an_admin_sees_all_of_it_and_the_audit_says_so(conn: redis.Redis) -> None:
    leave(conn)
    answer = Caller(conn).ask("POST", PATH)
    assert (answer.status, answer.headers["cache-control"]) == (200, "no-store")
    shown = answer.json
    assert json.loads(shown["arguments"]["text"]) == {"args": [{"to": CANARY, "token": "***"}], "kwargs": {}}
    assert json.loads(shown["returned"]["text"]) == [CANARY, "***"]
    assert json.loads(shown["meta"]["text"]) == {"of": CANARY} and json.loads(shown["cursor"]["text"]) == {"at": CANARY}
    assert shown["description"]["text"] == f"for {CANARY}" and shown["reason"]["text"] == f"ValueError: {CANARY}"
    assert shown["trace"]["text"] == f"Traceback\n  {CANARY} ***" and shown["trace"]["cut"] is False
    assert shown["callback_error"]["text"] == f"callback_error {CANARY} ***"
    assert shown["quarantined_for"]["text"] and shown["result_error"]["text"]
    assert [one["error"]["text"] for one in shown["runs"]] == [f"{CANARY} ***"]
    assert HIDDEN.encode() not in answer.body
    (entry,) = AuditInspector(conn).entries()
    assert (entry.who, entry.action, entry.target, entry.queues, entry.outcome) == ("token:texts", "reveal", "a", ("sms",), "ok")
    assert CANARY not in str(conn.xrange("rq:audit"))


@pytest.mark.parametrize("scopes", [(), SCOPES[:1], SCOPES[:2]])
def test_who_is_no_admin_sees_none_of_it(conn: redis.Redis, scopes: tuple[str, ...]) -> None:
    leave(conn)
    answer = Caller(conn, scopes=scopes).ask("POST", PATH)
    assert (answer.status, answer.code) == (403, "missing_scope")
    assert CANARY.encode() not in answer.body and not looks(conn)


def test_a_job_of_another_queue_is_answered_like_none(conn: redis.Redis) -> None:
    leave(conn)
    other = Caller(conn, Scope(("pn", "sms-*")))
    answers = [other.ask("POST", path) for path in (PATH, PATH.replace("/a/", "/nobody/"))]
    assert [(one.status, one.code) for one in answers] == [(404, "no_such_job")] * 2
    assert answers[0].body.replace(b"'a'", b"'nobody'") == answers[1].body
    assert Caller(conn, Scope(("sms",))).ask("POST", PATH).status == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_but_a_post_reveals(conn: redis.Redis, method: str) -> None:
    leave(conn)
    answer = Caller(conn).ask(method, PATH)
    assert answer.status == 405 and CANARY.encode() not in answer.body and not looks(conn)


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:2", "host": "localhost:1"},
    ],
)
def test_a_page_of_another_site_reveals_nothing(conn: redis.Redis, headers: dict[str, str]) -> None:
    leave(conn)
    answer = Caller(conn, cors=Cors(["https://apps.example.com"])).ask("POST", PATH, **headers)
    assert (answer.status, answer.code) == (403, "cross_site") and not looks(conn)


def test_only_one_job_at_a_time(conn: redis.Redis) -> None:
    leave(conn)
    caller = Caller(conn)
    for path in (
        "/api/v1/jobs/reveal",
        "/api/v1/jobs/a,b/reveal",
        f"{PATH}?format=csv",
        f"{PATH}?query=state:failed",
        f"{PATH}/",
    ):
        answer = caller.ask("POST", path)
        assert answer.status in (404, 405, 422) and CANARY.encode() not in answer.body, path
    refused = caller.ask("POST", "/api/v1/operations", {"action": "reveal", "query": "state:failed"})
    assert refused.status == 422 and CANARY.encode() not in refused.body


# -- no audit, no answer


@pytest.mark.parametrize("breaks", ["wrong type", "last id", "no writes", "too old"])
def test_without_its_entry_nothing_is_shown(conn: redis.Redis, redis_url: str, breaks: str) -> None:
    leave(conn)
    caller = Caller(connect(redis_url, role="worker"))  # one attempt, as of a server
    if breaks == "wrong type":
        conn.set("rq:audit", "junk")
    elif breaks == "last id":
        conn.xadd("rq:audit", {"a": "b"}, id="18446744073709551615-18446744073709551615")
    elif breaks == "too old":
        conn.hset("rq:schema", mapping={"version": 999, "min_reader": 999, "min_writer": 999})
    else:
        conn.config_set("min-replicas-to-write", 1)
    try:
        answer = caller.ask("POST", PATH)
    finally:
        if breaks == "no writes":
            conn.config_set("min-replicas-to-write", 0)
    assert answer.status == 503 and CANARY.encode() not in answer.body
    assert answer.code == {"no writes": "redis_unavailable", "too old": "outdated"}.get(breaks, "not_audited")
    if answer.code == "not_audited":
        assert "audit can't be written" in answer.json["error"]["message"]


def test_the_entry_is_there_before_anything_of_the_job_is_read(conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(conn)
    seen: list[list[tuple[str, str]]] = []

    def read(*given: Any, **more: Any) -> Any:
        seen.append(looks(conn))
        raise KeyboardInterrupt  # the process is killed here

    monkeypatch.setattr("fusion.web.jobs.read_job", read)
    monkeypatch.setattr(AuditedChange, "done", lambda *given, **more: None)
    with pytest.raises(KeyboardInterrupt):
        Caller(conn).ask("POST", PATH)
    assert seen == [[("a", NO_ANSWER)]] == [looks(conn)]


def test_each_look_has_its_own_entry(conn: redis.Redis) -> None:
    leave(conn)
    for _ in range(2):
        assert Caller(conn).ask("POST", PATH, **{"idempotency-key": "x"}).status == 200
    assert looks(conn) == [("a", "ok")] * 2


# -- without tokens


def anonymously(conn: redis.Redis, client: str, **headers: str) -> Response:
    return App(Api(conn, ()).routes(), no_auth).handle(
        Request("POST", PATH, {"host": "localhost:8080", **headers}, client=client)
    )


def test_without_tokens_only_this_machine_itself_sees_it(conn: redis.Redis) -> None:
    leave(conn)
    for client in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"):
        for host in ("localhost", "127.0.0.1:8080", "[::1]:8080"):
            assert anonymously(conn, client, host=host).status == 200, (client, host)
    for client in ("10.0.0.9", "::ffff:10.0.0.9", "localhost", "", "unix:"):
        assert b"not_local" in anonymously(conn, client).body, client
    for name in ("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "forwarded", "x-real-ip", "via"):
        for value in ("127.0.0.1", "evil.example"):
            refused = anonymously(conn, "127.0.0.1", **{name: value})
            assert refused.status == 403 and b"not_local" in refused.body and CANARY.encode() not in refused.body, name


def test_a_caller_without_a_token_is_not_of_this_machine_unless_that_was_checked(conn: redis.Redis) -> None:
    leave(conn)
    app = App(Api(conn, ()).routes(), lambda request: ANONYMOUS)
    assert app.handle(Request("POST", PATH, {"host": "localhost"}, client="127.0.0.1")).status == 403


@pytest.mark.parametrize("header", ["X-Forwarded-Host", "X-Forwarded-For", "Forwarded", "X-Real-IP"])
def test_a_real_server_without_tokens(start: Start, redis_url: str, conn: redis.Redis, header: str) -> None:
    """What the server under the service does with headers of proxies hides none of them."""
    leave(conn)
    server = start(redis_url, "--no-auth", "--allowed-host", "fusion.example.com")
    assert server.ask("POST", PATH).status == 200
    for headers in ({header: "localhost"}, {"Host": "fusion.example.com"}):
        refused = server.ask("POST", PATH, headers=headers)
        assert (refused.status, refused.code) == (403, "not_local") and CANARY.encode() not in refused.body
        assert server.ask("POST", "/api/v1/jobs/a/requeue", headers=headers).status in (200, 409), (
            "other actions are as they were"
        )
    assert server.ask("POST", PATH, headers={"Host": "evil.example"}).status == 421


# -- what stays hidden


def test_no_other_route_shows_it(conn: redis.Redis) -> None:
    leave(conn)
    leave(conn, "b", "email")
    caller = Caller(conn)
    assert CANARY.encode() in caller.ask("POST", PATH).body
    includes = "?include=events,arguments,trace,log"
    known = {"id": "a", "name": "sms", "key": "smtp"}
    for route in Api(conn, ()).routes():
        if route.method not in SAFE:
            continue
        for query in (
            "",
            *(("?format=csv", "?format=jsonl") if route.rows else ()),
            *([includes] if route.action == "job" else ()),
        ):
            answer = caller.ask("GET", route.path.format(**known) + query)
            assert CANARY.encode() not in answer.body and HIDDEN.encode() not in answer.body, route.path + query


SECRET = {"__fusion__": ["secret", HIDDEN]}


@pytest.mark.parametrize(
    "stored",
    [
        SECRET,
        [[{"deep": [SECRET]}]],
        {"__fusion__": ["tuple", [SECRET]]},
        {"__fusion__": ["dict", [["k", SECRET]]]},
        {"__fusion__": ["dataclass", ["m.C", {"f": SECRET}]]},
        {"__fusion__": ["secret", HIDDEN, "more"]},
        {"__fusion__": ["secret", HIDDEN], "more": 1},
    ],
)
def test_a_secret_stays_masked_to_everybody(conn: redis.Redis, stored: Any) -> None:
    leave(conn)
    conn.hset("rq:job:a", "result", json.dumps(stored))
    revealed = Caller(conn).ask("POST", PATH)
    assert revealed.status == 200 and "***" in revealed.json["returned"]["text"]
    assert HIDDEN.encode() not in revealed.body
    raw = Caller(conn).ask("GET", "/api/v1/jobs/a?include=result").json["result"]["text"]
    assert HIDDEN not in raw and "***" in raw


def test_a_secret_in_a_pickle_stays_hidden_and_no_pickle_is_opened(conn: redis.Redis) -> None:
    leave(conn)
    pickled = pickle.dumps(("f", None, [Secret(HIDDEN)], {}))
    conn.hset(
        "rq:job:a", mapping={"serializer": "pickle", "data": pickled, "result": pickled, "meta": pickled, "cursor": pickled}
    )
    conn.hdel("rq:job:a", *(name for name in ("exc_info", "callback_error", "quarantined", "result_error", "history")))
    shown = Caller(conn).ask("POST", PATH)
    assert {shown.json[name]["text"] for name in ("arguments", "returned", "meta", "cursor")} == {"not shown: pickled"}
    assert HIDDEN.encode() not in shown.body
    assert HIDDEN.encode() not in Caller(conn).ask("GET", "/api/v1/jobs/a?include=result").body


def test_what_cant_be_read_or_is_too_much_is_not_shown(conn: redis.Redis) -> None:
    leave(conn)
    many = [{"__fusion__": ["secret", f"secret-{n}"]} for n in range(101)]
    conn.hset(
        "rq:job:a",
        mapping={"data": b"[1,", "meta": b"[" * 100_000, "cursor": json.dumps(many), "result": b'"' + b"x" * 3_000_000},
    )
    shown = Caller(conn).ask("POST", PATH).json
    assert (shown["arguments"]["text"], shown["meta"]["text"]) == ("[unreadable]", "[unreadable]")
    assert shown["returned"]["text"] == "not shown: 3000001 bytes"
    assert "more than 100 secrets" in shown["trace"]["text"] and "more than 100" in shown["runs"][0]["error"]["text"]


def test_a_long_text_is_cut_after_it_is_masked(conn: redis.Redis) -> None:
    leave(conn)
    conn.hset("rq:job:a", "exc_info", "x" * 65_530 + HIDDEN + "y" * 50_000)
    shown = Caller(conn).ask("POST", PATH).json["trace"]
    assert shown["text"] == "x" * 65_530 + "***yyy" and shown["cut"] is True


def test_a_surrogate_is_no_fault(conn: redis.Redis) -> None:
    leave(conn)
    conn.hset("rq:job:a", mapping={"result": b'"\\ud800"', "history": b'{"error": "\\ud800", "outcome": "retry"}'})
    shown = Caller(conn).ask("POST", PATH)
    assert shown.status == 200 and shown.json["returned"]["text"] == '"\\ud800"'
    assert Caller(conn).ask("GET", "/api/v1/jobs/a?include=result").status == 200
