"""The relay's page: sinks, relays, callbacks, and trying these again."""

from __future__ import annotations

from collections.abc import Callable

import redis

from fusion.store.stream.reader import SinkEvent
from tests.cli.test_events import outage as outage
from tests.dashboard.browser import Browser, audited
from tests.web.strangers import deliveries, settle, strangers

HOSTILE = "<script>alert(1)<script>\u202e"


def test_nothing_yet(client: Browser) -> None:
    page = client.get("/relay")
    assert "No sink was ever served" in page.text and "No relay runs" in page.text and "No callback waits" in page.text
    assert client.get("/relay?status=nonsense").status == 200
    assert "No callback is failed." in client.get("/relay?status=failed").text


def test_an_outage_is_shown_with_what_is_parked_and_dropped(client: Browser, outage: list[SinkEvent]) -> None:
    page = client.get("/relay")
    assert "file open 6 times in a row" in page.text and "Service Unavailable" in page.text and "\x1b" not in page.html
    assert 'data-copy="run_worker.py events replay --sink file"' in page.html
    assert "box.1 alive" in page.text
    assert "Sink file open" in client.get("/").text


def test_selected_callbacks_are_tried_again(client: Browser, reader: Browser, conn: redis.Redis) -> None:
    settle(conn, "sms", "ours")
    found = deliveries(conn, "ours")
    page = client.get("/relay?status=waiting")
    assert f"{found[0]}" in page.html and "ours.example" in page.text
    assert "Select the callbacks" in client.press(page, "Retry selected").text
    told = client.press(page, "Retry selected", id=[*found, "cb-nobody"])
    assert f"{len(found)} callbacks are tried again. 1 not: cb-nobody: there is no delivery" in told.text
    assert audited(conn, "callbacks_retry")[0] == "token:adminer"
    assert "Retry selected" not in [label for _, _, label in reader.get("/relay").forms()]
    assert reader.send("/relay/retry", id=found).status == 403


def test_among_very_many_failed_jobs_the_last_are_looked_at(client: Browser, conn: redis.Redis) -> None:
    settle(conn, "sms", "ours")
    first, last = deliveries(conn, "ours")[0], "cb-1795443281956418-2"
    conn.copy(f"rq:job:{first}", f"rq:job:{last}")
    for one in (first, last):
        conn.hset(f"rq:job:{one}", "status", "failed")
    conn.zadd("rq:queue:failed", {first: 1, last: 1e15})
    conn.zadd("rq:queue:failed", {f"other-{n}": 1000 + n for n in range(10_000 - conn.zcard("rq:queue:failed"))})
    page = client.get("/relay")
    assert first in page.html and last in page.html and "Among the" not in page.text
    conn.zadd("rq:queue:failed", {"one-more": 2000})
    page = client.get("/relay?status=failed")
    assert first not in page.html and last in page.html
    assert "Among the 10,000 jobs that failed last" in page.text and "callbacks list" in page.text


def test_hostile_texts_are_escaped(client: Browser, outage: list[SinkEvent], conn: redis.Redis) -> None:
    settle(conn, "sms", "ours")
    conn.hset("rq:sink:file", "error", HOSTILE)
    conn.hset("rq:relay:box.1", mapping=dict.fromkeys(("hostname", "sinks", "busy"), HOSTILE))
    for one in deliveries(conn, "ours"):
        conn.hset(f"rq:job:{one}", mapping={"last_answer": HOSTILE, "answer": HOSTILE})
    page = client.get("/relay")
    assert "<script>alert" not in page.html and "\u202e" not in page.html and "alert(1)" in page.text


def test_a_token_for_some_queues_sees_only_their_callbacks(restricted: Callable[..., Browser], conn: redis.Redis) -> None:
    settle(conn, "sms", "ours")
    strangers(conn)
    browser = restricted("sms")
    page = browser.get("/relay")
    assert "ours.example" in page.text and "zebra" not in page.html and "Sinks of events" not in page.text
    (theirs, *_) = deliveries(conn, "zebra")
    assert "there is no delivery of this id" in browser.post("/relay/retry", id=theirs).text
