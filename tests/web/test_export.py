"""Lists as files."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from typing import Any

import pytest
import redis

from fusion import Queue
from fusion.store.write.broker import Broker
from fusion.web.app import App
from fusion.web.asgi import Asgi
from fusion.web.auth import ANONYMOUS
from fusion.web.exchange import Request, Response
from fusion.web.export import cell, exported
from fusion.web.routing import Route, paging
from tests.store.batch_hands import add, begin
from tests.web.harness import ServerProcess, Tokens
from tests.web.strangers import TASK, Caller


def rows(body: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(body.decode(), newline="")))


def listing(count: int, asked: list[tuple[int, int]]) -> Route:
    """A list of this many numbers; notes which pages were asked for."""

    def handler(request: Request) -> Response:
        args = request.args()
        offset, limit = int(args.get("offset", 0)), int(args.get("limit", 100))
        asked.append((offset, limit))
        found = [{"n": n, "odd": bool(n % 2), "name": f"={n}", "more": {"a": [n]}} for n in range(count)[offset : offset + limit]]
        return Response.json({"numbers": found})

    return Route("GET", "/x", handler, "read", "numbers", paging("Numbers", 100, 1000), rows="numbers")


def read(route: Route, query: str) -> tuple[Response, bytes]:
    response = exported(route, Request("GET", "/x", {}, query=query))
    assert response.parts is not None
    return response, b"".join(response.parts)


def test_a_list_is_read_page_by_page_and_bounded() -> None:
    asked: list[tuple[int, int]] = []
    response, body = read(listing(1200, asked), "format=csv")
    assert len(rows(body)) == 1200
    assert rows(body)[3] == {"n": "3", "odd": "true", "name": "'=3", "more": '{"a": [3]}'}
    assert asked == [(0, 500), (500, 500), (1000, 500)]
    assert response.headers["Content-Disposition"] == 'attachment; filename="numbers.csv"'
    assert response.headers["Content-Type"] == "text/csv; charset=utf-8"
    asked.clear()
    _, body = read(listing(10**6, asked), "format=jsonl&limit=700&offset=5")
    assert [json.loads(line)["n"] for line in body.splitlines()] == list(range(5, 705))
    assert asked == [(5, 500), (505, 200)]
    assert len(rows(read(listing(10**6, []), "format=csv")[1])) == 10_000
    assert read(listing(0, []), "format=csv")[1] == b""


def test_the_first_page_alone_is_read_before_the_answer_begins() -> None:
    asked: list[tuple[int, int]] = []
    response = exported(listing(10**6, asked), Request("GET", "/x", {}, query="format=csv"))
    assert len(asked) == 1
    assert response.parts is not None
    next(response.parts), next(response.parts), next(response.parts)
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\\t=1"),
        ("\r=1", "'\\r=1"),
        ("\n=1", "'\\n=1"),
        ("\uff1d1", "'\uff1d1"),
        ("a\nb", "a\\nb"),
        ("a\x00\x1b[2J", "a\\x00\\x1b[2J"),
        ("\u202egpj", "\\u202egpj"),
        ("\ud800", "\\ud800"),
        ("plain, text", "plain, text"),
        ("Grüße", "Grüße"),
        (None, ""),
        (True, "true"),
        (-1, "-1"),
        (1.5, "1.5"),
        (["="], '["="]'),
        ("", ""),
    ],
)
def test_cells(value: Any, shown: str) -> None:
    assert cell(value) == shown


def test_files_over_the_wire(service: ServerProcess, tokens: Tokens, conn: redis.Redis) -> None:
    for n in range(3):
        Queue(f"q{n}", conn).enqueue(TASK)
    token = tokens.by_scope["read"]
    answer = service.ask("GET", "/api/v1/queues?format=csv", token=token)
    assert (answer.status, answer.headers["transfer-encoding"]) == (200, "chunked")
    assert [row["name"] for row in rows(answer.body)] == ["q0", "q1", "q2"]
    lines = service.ask("GET", "/api/v1/queues?format=jsonl&limit=2", token=token)
    shown = service.ask("GET", "/api/v1/queues?limit=2", token=token).json["queues"]
    told = [json.loads(line) for line in lines.body.splitlines()]
    moving = {"last_updated": "", "oldest_age": 0}
    assert [{**row, **moving} for row in told] == [{**row, **moving} for row in shown]
    assert service.ask("HEAD", "/api/v1/queues?format=csv", token=token).body == b""
    for path, said in (
        ("/api/v1/queues?format=xml", "json, csv, jsonl"),
        ("/api/v1/queues/q0/stats?format=csv", "there is no query parameter format here; there is since"),
    ):
        bad = service.ask("GET", path, token=token)
        assert (bad.status, bad.json["error"]["field"]) == (422, "format")
        assert said in bad.json["error"]["message"]
    assert service.ask("GET", "/api/v1/queues?format=csv&limit=100001", token=token).status == 422


def test_members_of_a_batch_as_a_file(conn: redis.Redis) -> None:
    begin(Broker(conn), "b")
    add(Broker(conn), "b", *(f"j{n}" for n in range(7)))
    body = Caller(conn).ask("GET", "/api/v1/batches/b?format=jsonl&limit=5").body
    assert len(body.splitlines()) == 5


def test_a_file_from_an_asgi_server() -> None:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    app = App([listing(1200, [])], lambda request: ANONYMOUS)
    headers = [(b"host", b"localhost")]
    scope = {"type": "http", "method": "GET", "path": "/x", "query_string": b"format=csv", "headers": headers, "client": None}
    asyncio.run(Asgi(app)(scope, receive, send))
    start, *parts, end = sent
    assert b"content-length" not in dict(start["headers"])
    assert len(rows(b"".join(part["body"] for part in parts))) == 1200
    assert len(parts) == 4 and end == {"type": "http.response.body", "body": b""}
