"""Who may ask what: generated from the table of routes, so that no route can be forgotten."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import pytest
import redis

from fusion import Queue
from fusion.cron.scheduler import Scheduler
from fusion.jobs.failure_groups import group_id
from fusion.store.write.broker import Broker
from fusion.store.write.limit_broker import LimitBroker
from fusion.web.api import Api
from fusion.web.auth import ANONYMOUS, new_token
from fusion.web.exchange import HttpError, Request, Response
from fusion.web.limiter import ATTEMPTS, FailureLimiter
from fusion.web.routing import Route, Router
from tests.kit.hands import Hand, everything, put
from tests.kit.waiting import eventually
from tests.store.batch_hands import begin
from tests.web.conftest import Fail, Start
from tests.web.harness import SCOPES, ServerProcess, Tokens

ROUTES = Api(cast(Any, None), ()).routes()
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
#: Of each action: what stands for the names in its path, a body, and the answer to who may.
GOOD: dict[str, tuple[dict[str, str], Any, int]] = {
    "health": ({}, None, 200),
    "ready": ({}, None, 200),
    "audit": ({}, None, 200),
    "trash": ({}, None, 200),
    "trash_restore": ({"id": "thrown-sms"}, None, 200),
    "trash_empty": ({}, {}, 200),
    "openapi": ({}, None, 200),
    "retry_task": ({}, {"job_id": "failed-1"}, 202),
    "enqueue": ({}, {"queue": "sms", "func": "tests.jobs.basic.noop"}, 201),
    "jobs": ({}, None, 200),
    "job": ({"id": "failed-1"}, None, 200),
    "tree": ({"id": "failed-1"}, None, 200),
    "stop": ({"id": "stop-sms"}, None, 200),
    "cancel": ({"id": "stop-sms"}, None, 200),
    "copy": ({"id": "failed-sms"}, {"priority": "high"}, 201),
    "reveal": ({"id": "failed-sms"}, None, 200),
    "requeue": ({"id": "failed-sms"}, None, 200),
    "reschedule": ({"id": "later-sms"}, {"when": "5m"}, 200),
    "delete": ({"id": "failed-sms"}, None, 200),
    "batches": ({}, None, 200),
    "batch": ({"id": "batch-sms"}, None, 200),
    "batch_graph": ({"id": "batch-sms"}, None, 200),
    "batch_cancel": ({"id": "batch-sms"}, None, 200),
    "failures": ({}, None, 200),
    "failure": ({"id": group_id("builtins.ValueError", "tests.jobs.basic:boom")}, None, 200),
    "operation": ({}, {"action": "requeue", "query": "queue:sms"}, 202),
    "operations": ({}, None, 200),
    "operation_show": ({"id": "op-sms"}, None, 200),
    "operations_cancel": ({"id": "op-sms"}, None, 200),
    "queues": ({}, None, 200),
    "stats": ({"name": "sms"}, None, 200),
    "key_stats": ({"key": "smtp"}, None, 200),
    "function_stats": ({"key": "smtp"}, None, 200),
    "keys": ({}, None, 200),
    "limit_set": ({"key": "smtp"}, {"max_concurrent": 5}, 200),
    "limit_pause": ({"key": "smtp"}, {"duration": "10m"}, 200),
    "limit_resume": ({"key": "smtp"}, None, 200),
    "limit_release": ({"key": "smtp"}, {"job_id": "held-sms"}, 200),
    "queue": ({"name": "sms"}, None, 200),
    "history": ({}, None, 200),
    "functions": ({}, None, 200),
    "function": ({"name": "tests.jobs.nothing"}, None, 404),
    "info": ({}, None, 200),
    "doctor": ({}, None, 200),
    "running": ({}, None, 200),
    "redis": ({}, None, 200),
    "scheduled": ({}, None, 200),
    "sinks": ({}, None, 200),
    "workers": ({}, None, 200),
    "worker": ({"name": "worker-sms"}, None, 200),
    "quiet": ({"name": "worker-sms"}, None, 409),
    "unquiet": ({"name": "worker-sms"}, None, 409),
    "worker_stop": ({"name": "worker-sms"}, None, 409),
    "suspend": ({}, {"duration": "10m"}, 200),
    "resume": ({}, {}, 200),
    "cron": ({}, None, 200),
    "cron_entry": ({"id": "entry-sms"}, None, 200),
    "cron_run": ({"id": "entry-sms"}, None, 200),
    "cron_pause": ({"id": "entry-sms"}, None, 200),
    "cron_resume": ({"id": "entry-sms"}, None, 200),
    "cron_remove": ({"id": "entry-sms"}, None, 200),
    "callbacks": ({}, None, 200),
    "callback": ({"id": "cb-sms"}, None, 404),
    "callbacks_retry": ({"id": "cb-sms"}, None, 404),
    "pause": ({"name": "sms"}, {"duration": "10m", "reason": "the provider is down"}, 200),
    "unpause": ({"name": "sms"}, None, 200),
    "empty": ({"name": "sms"}, None, 200),
}


def _methods(route: Route) -> list[str]:
    """All but those by which the table has another route at the same path, which has a turn of its own."""
    others = {one.method for one in ROUTES if one.path == route.path and one is not route}
    return [method for method in METHODS if not others & {method, "GET" if method == "HEAD" else method}]


#: What a change is about, where that is not the id that it answers; and if the request is refused.
TARGETS = {
    "copy": ("failed-sms", "-"),
    **dict.fromkeys(("limit_set", "limit_pause", "limit_release"), ("smtp", "smtp")),
    "limit_resume": ("smtp", "smtq"),
    **dict.fromkeys(("quiet", "unquiet", "worker_stop"), ("worker-sms", "worker-sma")),
    **dict.fromkeys(("cron_run", "cron_pause", "cron_resume", "cron_remove"), ("entry-sms", "entry-sma")),
    "callbacks_retry": ("cb-sms", "cb-sma"),
    "pause": ("sms", "sms"),
    **dict.fromkeys(("unpause", "empty"), ("sms", "sma")),
    **dict.fromkeys(("suspend", "resume", "trash_empty"), ("-", "-")),
    "stop": ("stop-sms", "stop-sma"),
    "cancel": ("stop-sms", "stop-sma"),
    **dict.fromkeys(("requeue", "reveal"), ("failed-sms", "failed-sma")),
    "reschedule": ("later-sms", "later-sms"),
    "delete": ("failed-sms", "failed-sma"),
    "batch_cancel": ("batch-sms", "batch-sma"),
    "operations_cancel": ("op-sms", "op-sma"),
    "trash_restore": ("thrown-sms", "thrown-sma"),
}


def furnish(conn: redis.Redis, fail: Fail, action: str) -> None:
    """What the paths of `GOOD` name."""
    fail("failed-1")
    fail("failed-sms")
    put(Broker(conn), "sms", "stop-sms")
    begin(Broker(conn), "batch-sms")
    LimitBroker(conn).pin_limit("smtp", 2)
    if action.startswith("trash"):
        put(Broker(conn), "sms", "thrown-sms")
        Broker(conn).delete_to_trash(["thrown-sms"])
    if action in ("worker", "quiet", "unquiet", "worker_stop"):
        Hand(Broker(conn), "sms", name="worker-sms")
    if action.startswith("operation"):
        Broker(conn).open_operation("op-sms", {"action": "requeue", "query": "queue:sms", "states": "failed"})
    if action.startswith("cron"):
        Scheduler(conn).cron("* * * * *", "tests.jobs.basic.noop", id="entry-sms", queue="sms")
    if action == "reschedule":
        Queue("sms", conn).enqueue("tests.jobs.basic.noop", job_id="later-sms", enqueue_in=60)
    if action == "limit_release":
        Queue("keyed", conn).enqueue("tests.jobs.basic.noop", job_id="held-sms", concurrency_key="smtp")
        Hand(Broker(conn), "keyed").take()


def unrecorded(conn: redis.Redis) -> dict[str, Any]:
    """All but the audit, which has refused requests as well."""
    found = everything(conn)
    return {key: found[key] for key in found if key != "rq:audit" and not key.startswith("rq:events:said:")}


def _expected(route: Route, method: str, credential: str) -> int:
    if method not in (route.method, "HEAD" if route.method == "GET" else ""):
        return 405
    if route.scope is None:
        return GOOD[route.action][2]
    if credential in ("none", "bad"):
        return 401
    return GOOD[route.action][2] if SCOPES.index(credential) >= SCOPES.index(route.scope) else 403


def test_every_route_is_in_the_matrix() -> None:
    assert {route.action for route in ROUTES} == set(GOOD)
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)
    assert {route.path for route in ROUTES if route.scope is None} == {"/healthz", "/readyz"}


def _cases() -> Iterator[tuple[Route, list[str]]]:
    """Each route with every credential. Those that change nothing ask of the same; each that does has a Redis of its own."""
    for route in ROUTES:
        able = [scope for scope in SCOPES if route.changes and SCOPES.index(scope) >= SCOPES.index(str(route.scope))]
        yield route, [one for one in ("none", "bad", *SCOPES) if one not in able]
        yield from ((route, [one]) for one in able)


@pytest.mark.parametrize(
    ("route", "credentials"), list(_cases()), ids=lambda one: one.action if isinstance(one, Route) else "+".join(one)
)
def test_each_route_with_each_method_and_token(
    service: ServerProcess, tokens: Tokens, conn: redis.Redis, fail: Fail, source: str, route: Route, credentials: list[str]
) -> None:
    furnish(conn, fail, route.action)
    known = {**tokens.by_scope, "none": "", "bad": new_token("bad", ["admin"])[0]}
    params, body, _ = GOOD[route.action]
    for credential in credentials:
        look = unrecorded if route.changes and _expected(route, route.method, credential) not in (401, 403, 405) else everything
        before = look(conn)
        for method in sorted(_methods(route), key=lambda method: method == route.method):  # what may change something comes last
            expected = _expected(route, method, credential)
            if method == route.method:
                assert look(conn) == before, "another method changes nothing"
            answer = service.ask(
                method,
                route.path.format(**params),
                None if method in ("GET", "HEAD") else body,
                token=known[credential],
                source=source,
            )
            assert answer.status == expected, (method, credential, answer)
            if method != "HEAD":
                assert answer.json
            else:
                assert answer.body == b""
            if expected == 405:
                assert route.method in answer.headers["allow"].split(", ")
            if expected == 401:
                assert answer.headers["www-authenticate"].startswith('Bearer realm="fusion"')
            if expected == 403:
                assert answer.code == "missing_scope"
                assert f'scope="{route.scope}"' in answer.headers["www-authenticate"]
        if expected >= 400 or not route.changes:
            assert look(conn) == before, "who may not, changes nothing"


@pytest.mark.parametrize("route", [route for route in ROUTES if route.changes], ids=lambda route: route.action)
def test_each_change_leaves_one_audit_line(
    service: ServerProcess, tokens: Tokens, conn: redis.Redis, fail: Fail, route: Route
) -> None:
    furnish(conn, fail, route.action)
    params, body, status = GOOD[route.action]
    at, scope, path = len(service.output), str(route.scope), route.path.format(**params)
    good = service.ask(route.method, path, body, token=tokens.by_scope[scope])
    wrong, code = (path, 400) if body is not None else (path.replace("sms", "sma").replace("smtp", "smtq"), 404)
    bad = service.ask(route.method, wrong, b"{" if body is not None else None, token=tokens.by_scope[scope])
    assert (good.status, bad.status) == (status, code)
    service.ask(route.method, path, body, token=tokens.by_scope["read"])
    found = eventually(
        lambda: re.findall(r"audit: (.+)", service.output[at:])[1:] and re.findall(r"audit: (.+)", service.output[at:])
    )
    target, amiss = TARGETS.get(route.action) or (good.json.get("job_id") or good.json.get("id", "sms"), "-")
    assert [line.split(" ", 1)[1] for line in found] == [
        f"actor={scope}er client=127.0.0.1 action={route.action} target={target} status={good.status}",
        f"actor={scope}er client=127.0.0.1 action={route.action} target={amiss} status={code}",
    ]


@pytest.mark.parametrize(
    "header",
    [
        "Basic {0}",
        "{0}",
        "Bearer",
        "Bearer ",
        "Bearer {0}x",
        "Bearer x{0}",
        "Bearer {0}, Bearer {0}",
        "Bearer \u00e9",
        "Token {0}",
    ],
)
def test_what_is_no_token_is_none(service: ServerProcess, tokens: Tokens, source: str, header: str) -> None:
    value = header.format(tokens.by_scope["admin"])
    connection = service.connect(source)
    connection.putrequest("GET", "/api/v1/queues")
    connection.putheader("Authorization", value.encode("latin-1"))
    connection.endheaders()
    assert connection.getresponse().status == 401
    connection.close()


def test_a_client_with_ten_wrong_tokens_is_held_off_and_right_ones_still_pass(
    service: ServerProcess, tokens: Tokens, source: str
) -> None:
    statuses = [service.ask("GET", "/api/v1/queues", token=f"wrong{n}", source=source).status for n in range(ATTEMPTS + 1)]
    assert statuses == [401] * ATTEMPTS + [429]
    held = service.ask("GET", "/api/v1/queues", token="wrong", source=source)
    assert held.code == "too_many_failures"
    assert 1 <= int(held.headers["retry-after"]) <= 60
    assert service.ask("GET", "/api/v1/queues", token=tokens.by_scope["read"], source=source).status == 200
    assert service.ask("GET", "/api/v1/queues", source=source).status == 401, "no token is no attempt"
    assert service.ask("GET", "/api/v1/queues", token="wrong", source="127.255.0.1").status == 401, "another client"


def test_failures_are_forgotten_with_their_window_and_with_too_many_clients() -> None:
    now = [0.0]
    limiter = FailureLimiter(2, 60.0, lambda: now[0])
    assert [limiter.failed("2001:db8::1"), limiter.failed("2001:db8::2"), limiter.failed("2001:db8::3")] == [0, 0, 60]
    assert limiter.failed("2001:db8:0:1::1") == 0, "another network"
    now[0] = 59.5
    assert limiter.failed("2001:db8::1") == 1
    now[0] = 60.0
    assert limiter.failed("2001:db8::1") == 0
    for number in range(20_000):
        limiter.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(limiter._failures) == 10_000


def test_a_changed_tokens_file_counts_at_once(start: Start, redis_url: str, tmp_path: Any) -> None:
    tokens = Tokens.write(tmp_path / "tokens")
    server = start(redis_url, "--tokens", str(tokens.path))
    assert server.ask("GET", "/api/v1/queues", token=tokens.by_scope["read"]).status == 200
    added, line = new_token("more", ["read"])
    tokens.path.write_text(line + "\n")
    assert server.ask("GET", "/api/v1/queues", token=added).status == 200
    assert server.ask("GET", "/api/v1/queues", token=tokens.by_scope["read"]).status == 401, "revoked"
    tokens.path.write_text("more:read:nonsense\n")
    assert server.ask("GET", "/api/v1/queues", token=added).status == 200
    tokens.path.unlink()
    assert server.ask("GET", "/api/v1/queues", token=added).status == 200
    assert "line 1: use name:scope" in server.output
    assert "the tokens known before stay valid" in server.output
    assert added not in server.output


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:80", 200),
        ("127.0.0.1:8080", 200),
        ("[::1]:8080", 200),
        ("localhost.", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1, evil.example", 421),
        ("evil.example/@localhost", 421),
        ("localhost:80:80", 421),
        ("localhost:x", 421),
        ("", 421),
    ],
)
def test_only_known_hosts_are_answered(service: ServerProcess, tokens: Tokens, host: str, status: int) -> None:
    asked = {"Host": host}
    assert service.ask("GET", "/api/v1/queues", token=tokens.by_scope["read"], headers=asked).status == status
    assert service.ask("GET", "/healthz", headers=asked).status == 200, "probes come by any name"
    assert service.ask("GET", "/nothing", headers=asked).status == (404 if status == 200 else 421)


@pytest.mark.parametrize("by_flag", [True, False])
def test_further_hosts_are_named(start: Start, redis_url: str, tokens: Tokens, by_flag: bool) -> None:
    named = "Fusion.example.com,.apps.example.com,one.example,two.example"
    flags = [part for name in named.split(",") for part in ("--allowed-host", name)] if by_flag else []
    env = {} if by_flag else {"FUSION_SERVER_ALLOWED_HOSTS": named}
    server = start(redis_url, "--tokens", str(tokens.path), *flags, env=env)

    def status(host: str) -> int:
        return server.ask("GET", "/api/v1/queues", token=tokens.by_scope["read"], headers={"Host": host}).status

    good = ["fusion.example.com:443", "a.b.apps.example.com", "apps.example.com", "one.example", "two.example", "localhost"]
    assert {status(host) for host in good} == {200}
    assert {status(host) for host in ["example.com", "xapps.example.com", "x.fusion.example.com"]} == {421}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 201),
        ({"Sec-Fetch-Site": "same-origin"}, 201),
        ({"Sec-Fetch-Site": "none"}, 201),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:1", "Host": "localhost:1"}, 201),
        ({"Origin": "http://localhost:2", "Host": "localhost:1"}, 403),
    ],
)
def test_pages_of_other_sites_change_nothing(
    service: ServerProcess, tokens: Tokens, conn: redis.Redis, headers: dict[str, str], status: int
) -> None:
    answer = service.ask("POST", "/api/v1/jobs", GOOD["enqueue"][1], token=tokens.by_scope["operate"], headers=headers)
    assert answer.status == status
    assert conn.zcard("rq:queue:sms") == (status == 201)


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx"]
)
def test_a_form_changes_nothing(service: ServerProcess, tokens: Tokens, conn: redis.Redis, kind: str) -> None:
    answer = service.ask(
        "POST", "/api/v1/jobs", GOOD["enqueue"][1], token=tokens.by_scope["operate"], headers={"Content-Type": kind}
    )
    assert (answer.status, answer.code) == (415, "not_json")
    assert conn.dbsize() == 0


def test_a_route_that_changes_something_needs_a_scope() -> None:
    def handler(request: Request) -> Response:
        return Response()

    with pytest.raises(ValueError, match="give it a scope"):
        Route("POST", "/x", handler, None, "x")
    with pytest.raises(ValueError, match="use one of read, operate, admin"):
        Route("GET", "/x", handler, "root", "x")
    with pytest.raises(ValueError, match="two routes"):
        Router([Route("GET", "/x", handler, "read", "x"), Route("GET", "/x", handler, "read", "y")])


def test_a_scope_is_asked_of_an_actor() -> None:
    Request("GET", "/", {}, actor=ANONYMOUS).require("admin")
    with pytest.raises(HttpError, match="needs a token with the scope read"):
        Request("GET", "/", {}).require("read")
