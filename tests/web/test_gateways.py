"""The core as a WSGI and as an ASGI application, as another server or framework would call it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable
from typing import Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest
import redis
from redis.exceptions import ConnectionError, ResponseError

from fusion.exceptions import StoreUnavailable
from fusion.web.api import Api
from fusion.web.app import AccessEntry, App
from fusion.web.asgi import Asgi
from fusion.web.auth import no_auth
from fusion.web.exchange import Request, Response
from fusion.web.hosts import Hosts
from fusion.web.routing import Route

NOOP = b'{"func": "tests.jobs.basic.noop"}'
JSON = (b"content-type", b"application/json")


@pytest.fixture
def app(conn: redis.Redis) -> App:
    return App(Api(conn, ["tests.jobs.basic"]).routes(), no_auth, hosts=Hosts(["testserver"]), max_body=100)


# -- WSGI


def _wsgi(app: Any, method: str, path: str, body: bytes = b"", **environ: Any) -> tuple[int, dict[str, str], bytes]:
    given: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "HTTP_HOST": "testserver",
        "wsgi.input": io.BytesIO(body),
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        **environ,
    }
    setup_testing_defaults(given)
    seen: list[Any] = []

    def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], object]:
        seen.extend((int(status.split()[0]), {name.lower(): value for name, value in headers}))
        return lambda data: None

    parts = app({name: value for name, value in given.items() if value is not None}, start)
    return seen[0], seen[1], b"".join(parts)


def test_it_keeps_to_wsgi(app: App) -> None:
    checked = validator(app)
    given: dict[str, Any] = {"HTTP_HOST": "testserver", "SCRIPT_NAME": "", "PATH_INFO": "/healthz", "QUERY_STRING": ""}
    setup_testing_defaults(given)
    answered = checked(given, lambda status, headers, exc_info=None: lambda data: None)
    assert b"".join(answered) == b'{"status": "ok"}\n'
    answered.close()


def test_below_a_prefix_under_wsgi(app: App, conn: redis.Redis) -> None:
    status, headers, body = _wsgi(app, "POST", "/api/v1/jobs", NOOP, SCRIPT_NAME="/fusion")
    assert (status, headers["location"]) == (201, f"/fusion/api/v1/jobs/{json.loads(body)['job_id']}")
    assert conn.zcard("rq:queue:default") == 1


@pytest.mark.parametrize(("size", "status"), [(99, 201), (100, 201), (101, 413)])
@pytest.mark.parametrize("terminated", [False, True])
def test_the_limit_under_wsgi(app: App, size: int, status: int, terminated: bool) -> None:
    """With a length, and chunked as gunicorn hands it on: without one, but with an end."""
    more: dict[str, Any] = {"CONTENT_LENGTH": None, "wsgi.input_terminated": True} if terminated else {}
    assert _wsgi(app, "POST", "/api/v1/jobs", NOOP.ljust(size), **more)[0] == status


def test_a_body_without_length_and_end_is_none(app: App) -> None:
    status, _, body = _wsgi(app, "POST", "/api/v1/jobs", NOOP, CONTENT_LENGTH=None)
    assert (status, json.loads(body)["error"]["code"]) == (400, "bad_json")


def test_a_body_that_ends_early(app: App, conn: redis.Redis) -> None:
    status, _, body = _wsgi(app, "POST", "/api/v1/jobs", NOOP, CONTENT_LENGTH=str(len(NOOP) + 1))
    assert (status, json.loads(body)["error"]["code"]) == (400, "bad_request")
    assert conn.dbsize() == 0


def test_a_path_that_is_no_utf8(app: App) -> None:
    assert _wsgi(app, "GET", "/api/v1/jobs/\xff")[0] == 404


# -- ASGI


def _asgi(
    app: App,
    method: str,
    path: str,
    *body: bytes,
    headers: list[tuple[bytes, bytes]] | None = None,
    gone: bool = False,
    **scope: Any,
) -> tuple[int, dict[str, str], bytes]:
    sent: list[Any] = []
    parts = list(body) or [b""]

    async def receive() -> dict[str, Any]:
        if not parts and gone:
            return {"type": "http.disconnect"}
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts) or gone}

    async def send(message: Any) -> None:
        sent.append(message)

    given = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "headers": [(b"host", b"testserver"), JSON, *(headers or [])],
        "client": ("10.0.0.1", 5),
        **scope,
    }
    asyncio.run(Asgi(app)(given, receive, send))
    if not sent:
        return 0, {}, b""
    head, tail = sent
    assert (head["type"], tail["type"]) == ("http.response.start", "http.response.body")
    return head["status"], {name.decode(): value.decode() for name, value in head["headers"]}, tail["body"]


def _length(body: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"content-length", str(len(body)).encode())]


def test_it_answers_under_asgi(app: App, conn: redis.Redis) -> None:
    assert _asgi(app, "GET", "/healthz")[::2] == (200, b'{"status": "ok"}\n')
    status, headers, body = _asgi(app, "HEAD", "/healthz")
    assert (status, headers["content-length"], body) == (200, "17", b"")
    status, headers, body = _asgi(app, "POST", "/api/v1/jobs", NOOP[:5], NOOP[5:], headers=_length(NOOP))
    assert (status, headers["location"]) == (201, f"/api/v1/jobs/{json.loads(body)['job_id']}")
    assert conn.zcard("rq:queue:default") == 1
    assert _asgi(app, "GET", "/api/v1/queues", query_string=b"limit=x")[0] == 422


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/fusion/api/v1/jobs"])
def test_below_a_prefix_under_asgi_whether_the_path_holds_it_or_not(app: App, path: str) -> None:
    status, headers, _ = _asgi(app, "POST", path, NOOP, headers=_length(NOOP), root_path="/fusion")
    assert status == 201
    assert headers["location"].startswith("/fusion/api/v1/jobs/")


@pytest.mark.parametrize(("size", "status"), [(99, 201), (100, 201), (101, 413), (10_000, 413)])
@pytest.mark.parametrize("announced", ["length", "chunked", "http/2"])
def test_the_limit_under_asgi(app: App, size: int, status: int, announced: str) -> None:
    body = NOOP.ljust(size)
    headers = {"length": _length(body), "chunked": [(b"transfer-encoding", b"chunked")], "http/2": []}[announced]
    parts = [body[n : n + 40] for n in range(0, size, 40)]
    version = "2" if announced == "http/2" else "1.1"
    assert _asgi(app, "POST", "/api/v1/jobs", *parts, headers=headers, http_version=version)[0] == status


def test_a_client_that_goes_away_in_the_middle(app: App, conn: redis.Redis) -> None:
    assert _asgi(app, "POST", "/api/v1/jobs", NOOP[:5], headers=_length(NOOP), gone=True) == (0, {}, b"")
    assert conn.dbsize() == 0


def test_twice_the_same_header_is_both(app: App) -> None:
    assert _asgi(app, "GET", "/api/v1/queues", headers=[(b"Host", b"testserver")])[0] == 421


def test_requests_run_beside_each_other_and_beside_the_loop() -> None:
    import threading

    barrier = threading.Barrier(3)

    def meet(request: Request) -> Response:
        barrier.wait(10)
        return Response.json({})

    app = App([Route("GET", "/", meet, None, "meet")], no_auth)

    async def three() -> list[int]:
        statuses: list[int] = []

        async def one() -> None:
            async def receive() -> dict[str, Any]:
                return {"type": "http.request"}

            async def send(message: Any) -> None:
                statuses.extend([message["status"]] if "status" in message else [])

            await Asgi(app)({"type": "http", "method": "GET", "path": "/", "headers": []}, receive, send)

        await asyncio.gather(one(), one(), one())
        return statuses

    assert asyncio.run(three()) == [200, 200, 200]


def test_lifespan_and_websockets(app: App) -> None:
    sent: list[Any] = []
    coming = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def receive() -> dict[str, Any]:
        return dict(coming.pop(0))

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(Asgi(app)({"type": "lifespan"}, receive, send))
    asyncio.run(Asgi(app)({"type": "websocket", "path": "/"}, receive, send))
    assert [message["type"] for message in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete", "websocket.close"]


# -- the core


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("S3CR3T-canary"), 500),
        (ResponseError("WRONGTYPE S3CR3T-canary"), 500),
        (ConnectionError("Error connecting to redis://:S3CR3T-canary@host"), 503),
        (ResponseError("READONLY You can't write"), 503),
        (ResponseError("NOAUTH Authentication required."), 503),
        (StoreUnavailable("away"), 503),
    ],
)
def test_an_error_tells_callers_and_logs_nothing_of_its_text(
    caplog: pytest.LogCaptureFixture, error: Exception, status: int
) -> None:
    def fail(request: Request) -> Response:
        raise error

    audited: list[AccessEntry] = []
    app = App(
        [Route("GET", "/", fail, None, "fail"), Route("POST", "/", fail, "admin", "change")],
        no_auth,
        hosts=Hosts(["testserver"]),
        audit=audited.append,
    )
    with caplog.at_level(logging.INFO, "fusion.web"):
        for method in ("GET", "POST"):
            found, headers, body = _wsgi(app, method, "/")
            assert (found, "retry-after" in headers) == (status, status == 503)
            assert b"S3CR3T" not in body
            if status == 500:
                incident = json.loads(body)["error"]["message"].rpartition(" ")[2]
                assert f"incident {incident}: {type(error).__module__}.{type(error).__name__} at " in caplog.text
                assert "test_gateways.py" in caplog.text
    assert "S3CR3T" not in caplog.text
    assert [(entry.action, entry.actor, entry.status) for entry in audited] == [("change", "anonymous", status)]


def test_a_table_of_ones_own_stands_beside(app: App, conn: redis.Redis) -> None:
    def page(request: Request) -> Response:
        return Response(200, b"<!doctype html>", {"Content-Type": "text/html", "Content-Security-Policy": "default-src 'self'"})

    both = App([*Api(conn, []).routes(), Route("GET", "/pages/{name}", page, "read", "page")], no_auth, hosts=Hosts(["*"]))
    status, headers, body = _wsgi(both, "GET", "/pages/queues", HTTP_HOST="any.example")
    assert (status, body) == (200, b"<!doctype html>")
    assert headers["content-security-policy"] == "default-src 'self'"
    assert headers["x-content-type-options"] == "nosniff"
    assert _wsgi(both, "GET", "/pages/a/b")[0] == 404
    assert _wsgi(both, "GET", "/healthz")[0] == 200
