"""Pages of other sites: only those of origins that somebody named may ask, and no other header than before is sent otherwise."""

from __future__ import annotations

import pytest
import redis

from fusion.web.cors import Cors, check_origin_name
from tests.cli.conftest import Invoke
from tests.web.harness import Answer
from tests.web.strangers import TASK, Caller

GOOD, BAD = "https://apps.example.com", "https://evil.example"
ASKED = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}


def names(answer: Answer) -> set[str]:
    return {name for name in answer.headers if name.startswith("access-control") or name == "vary"}


@pytest.fixture
def caller(conn: redis.Redis) -> Caller:
    return Caller(conn, cors=Cors([GOOD]))


def test_a_question_beforehand(caller: Caller) -> None:
    asked = caller.ask("OPTIONS", "/api/v1/jobs", origin=GOOD, **ASKED)
    assert (asked.status, asked.body) == (204, b"")
    assert asked.headers["access-control-allow-origin"] == GOOD
    assert "POST" in asked.headers["access-control-allow-methods"].split(", ")
    assert asked.headers["access-control-allow-headers"] == "Authorization, Content-Type, Idempotency-Key"
    assert asked.headers["vary"] == "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"
    assert "content-length" not in asked.headers
    assert caller.ask("OPTIONS", "/nothing", origin=GOOD, **ASKED).status == 404
    assert caller.ask("OPTIONS", "/api/v1/jobs", origin=GOOD).status == 405, "no question beforehand"


@pytest.mark.parametrize(
    "origin", [BAD, "null", "https://apps.example.com.evil.example", "http://apps.example.com", GOOD + ":8443", ""]
)
def test_others_are_told_nothing(caller: Caller, conn: redis.Redis, origin: str) -> None:
    asked = caller.ask("OPTIONS", "/api/v1/jobs", origin=origin, **ASKED)
    assert (asked.status, names(asked)) == (405, {"vary"})
    assert names(caller.ask("GET", "/api/v1/queues", origin=origin)) == {"vary"}
    sent = caller.ask(
        "POST", "/api/v1/jobs", {"queue": "sms", "func": TASK}, origin=origin or BAD, **{"sec-fetch-site": "cross-site"}
    )
    assert (sent.status, sent.code) == (403, "cross_site")
    assert not conn.exists("rq:queue:sms")


def test_a_page_that_may_asks_and_reads(caller: Caller) -> None:
    for method, path, body, status in (
        ("POST", "/api/v1/jobs", {"queue": "sms", "func": TASK}, 201),
        ("GET", "/api/v1/queues", None, 200),
        ("GET", "/api/v1/jobs/none", None, 404),
    ):
        answer = caller.ask(method, path, body, origin=GOOD, **{"sec-fetch-site": "cross-site"})
        assert answer.status == status
        assert answer.headers["access-control-allow-origin"] == GOOD
        assert answer.headers["vary"] == "Origin"
        assert "access-control-allow-credentials" not in answer.headers


def test_nothing_changes_where_no_origin_is_named(conn: redis.Redis) -> None:
    caller = Caller(conn)
    for origin in (GOOD, "null"):
        assert names(caller.ask("GET", "/api/v1/queues", origin=origin)) == set()
        assert caller.ask("OPTIONS", "/api/v1/jobs", origin=origin, **ASKED).status == 405


@pytest.mark.parametrize(
    "origin",
    [
        "*",
        "null",
        "",
        "apps.example.com",
        "https://*.example.com",
        "https://a/",
        "https://a/b",
        "https://a b",
        "ftp://a",
        "https://u@a",
    ],
)
def test_what_is_no_origin(origin: str) -> None:
    with pytest.raises(ValueError, match=r"like https://apps\.example\.com"):
        check_origin_name(origin)


def test_an_origin_is_written_as_browsers_send_it() -> None:
    assert check_origin_name("HTTPS://Apps.example.com:443") == GOOD
    assert check_origin_name("http://localhost:3000") == "http://localhost:3000"
    assert check_origin_name("http://[::1]:80") == "http://[::1]"


def test_a_wrong_origin_is_told_at_the_start(invoke: Invoke, redis_url: str) -> None:
    ended = invoke("server", "--no-auth", "--port", "0", "--cors-origin", "*", code=2)
    assert "--cors-origin: origin '*': use scheme and host" in ended.stderr
