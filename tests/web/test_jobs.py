"""Jobs by a query over HTTP: pages, what can't be read, what a restricted token gets, files."""

from __future__ import annotations

import json
from itertools import count
from urllib.parse import quote

import pytest
import redis

from fusion.kernel.scope import EVERYTHING, Scope
from fusion.store.read import search_inspector
from fusion.store.read.cursor import Cursor
from fusion.store.read.search_inspector import SearchInspector
from tests.web.strangers import MARKER, OWN, Caller, settle, strangers


def ids(caller: Caller, query: str, limit: int = 50) -> list[str]:
    """Of all pages."""
    found, after = [], ""
    while True:
        document = caller.ask("GET", f"/api/v1/jobs?query={quote(query)}&limit={limit}&after={after}").json
        found += [job["id"] for job in document["jobs"]]
        after = document["after"]
        if not after:
            return found


def test_pages_of_a_query(conn: redis.Redis) -> None:
    settle(conn, OWN, "ours")
    caller = Caller(conn)
    everybody = ids(caller, "")
    assert len(everybody) == 10
    assert everybody[:2] == ["ours-started", "ours-failed"]
    assert ids(caller, "", 1) == everybody
    assert ids(caller, "state:failed error:error") == ["ours-failed"]
    assert ids(caller, "-state:finished,failed key:ours-key") == ["ours-blocked", "ours-held"]
    answer = caller.ask("GET", "/api/v1/jobs?query=state:failed").json
    assert (answer["query"], answer["looked"], answer["total"], answer["complete"], answer["note"]) == (
        "state:failed",
        1,
        1,
        True,
        None,
    )
    assert answer["jobs"][0]["error"] == {"class": "ours.Error", "at": "ours.mod:fn:3"}
    assert "broken" not in json.dumps(answer["jobs"]), "nothing that the error said"
    rows = caller.ask("GET", "/api/v1/jobs?format=jsonl").body.splitlines()
    assert [json.loads(row)["id"] for row in rows] == everybody


def test_a_page_whose_time_is_over_says_so_and_files_go_on(conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    conn.sadd("rq:queues", "rq:queue:sms")
    for state, key in (("failed", "rq:queue:failed"), ("queued", "rq:queue:sms")):
        for n in range(130):
            conn.hset(f"rq:job:{state}-{n}", mapping={"status": state, "origin": "sms", "func": f"tasks.f{n}"})
            conn.zadd(key, {f"{state}-{n}": n})
    monkeypatch.setattr(SearchInspector, "clock", staticmethod(count(0, 1).__next__))
    caller = Caller(conn)
    page = caller.ask("GET", "/api/v1/jobs?query=func:f3&limit=10").json
    assert (page["jobs"], page["complete"], page["looked"], page["total"]) == ([], True, 100, 130)
    assert page["after"]
    assert page["note"] == "looked at the newest 100 of 130 failed jobs; the next page goes on"
    assert ids(caller, "func:f3", 10) == ["failed-3", "queued-3"]
    rows = caller.ask("GET", "/api/v1/jobs?query=func:f3&format=jsonl").body.splitlines()
    assert [json.loads(row)["id"] for row in rows] == ["failed-3", "queued-3"]
    lines = caller.ask("GET", "/api/v1/jobs?query=func:f3&format=csv").body.decode().splitlines()
    assert [line.partition(",")[0] for line in lines] == ["id", "failed-3", "queued-3"]
    assert caller.ask("GET", "/api/v1/jobs?query=func:nobody&format=csv").body == b""


@pytest.mark.parametrize(
    ("query", "field", "says"),
    [
        ("query=stat:x", "query", "column 1: 'stat' is not a field: did you mean 'state'"),
        ("query=%22", "query", "not closed"),
        ("after=x", "after", "after: this is not a cursor"),
        ("limit=x", "limit", "limit"),
    ],
)
def test_what_can_not_be_read_is_422(conn: redis.Redis, query: str, field: str, says: str) -> None:
    answer = Caller(conn).ask("GET", f"/api/v1/jobs?{query}")
    code = "invalid_query" if field == "query" else "invalid_value"
    assert (answer.status, answer.json["error"]["code"], answer.json["error"]["field"]) == (422, code, field)
    assert says in answer.json["error"]["message"]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "state:failed,queued",
        "id:zebra-failed",
        "queue:zebra",
        "error:*",
        "zebra",
        "batch:zebra-batch",
        "key:zebra-key",
        "unique:zebra-unique",
        "worker:zebra-worker.1",
    ],
)
def test_a_restricted_token_gets_no_jobs_of_other_queues(conn: redis.Redis, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    strangers(conn)
    settle(conn, OWN, "ours")
    assert any(MARKER in one for one in ids(Caller(conn, EVERYTHING), query))
    caller = Caller(conn, Scope((OWN, "sms-*")))
    for looked, seconds in ((10_000, 0), (1, 0), (10_000, 1)):
        monkeypatch.setattr(search_inspector, "LOOKED", looked)
        monkeypatch.setattr(SearchInspector, "clock", staticmethod(count(0, seconds).__next__))
        answer = caller.ask("GET", f"/api/v1/jobs?query={query}&limit=1")
        assert answer.status == 200
        told = {name: value for name, value in answer.json.items() if name != "query"}
        assert MARKER not in json.dumps(told)
        assert MARKER not in repr(Cursor.read(answer.json["after"] or ""))
