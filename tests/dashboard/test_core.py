"""What holds for every page: logging in, ticks, answers that did not change, static files."""

from __future__ import annotations

import gzip
import socket

import redis

from fusion import Queue
from fusion.dashboard.access import Sessions
from fusion.dashboard.app import DashboardApp
from fusion.dashboard.static_files import files
from fusion.web.auth import ANONYMOUS, TokenFile
from tests.dashboard.browser import Browser
from tests.web.harness import Tokens


def test_without_a_session_every_page_leads_to_the_way_in(app: DashboardApp) -> None:
    told = Browser(app).get("/queues")
    assert (told.status, told.headers["location"]) == (303, "/login")
    assert Browser(app).get("/queues", hx_request="true").headers["hx-redirect"] == "/login"
    assert "Token" in Browser(app).get("/login").text


def test_a_token_opens_a_session_and_logging_out_ends_it(app: DashboardApp, tokens: Tokens, conn: redis.Redis) -> None:
    browser = Browser(app).log_in(tokens.by_scope["read"])
    assert browser.get("/queues").status == 200
    (key,) = conn.keys("rq:session:*")
    assert browser.cookies["fusion_session"].encode() not in key and tokens.by_scope["read"].encode() not in (
        conn.get(key) or b""
    )
    kept = dict(browser.cookies)
    browser.send("/logout")
    assert not conn.keys("rq:session:*")
    assert Browser(app, cookies=kept).get("/queues").status == 303


def test_a_tick_gets_what_is_in_the_page_alone_and_nothing_if_it_did_not_change(client: Browser, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue("tests.jobs.basic.noop")
    whole, part = client.get("/queues"), client.get("/queues", hx_request="true")
    assert "<html" in whole.html and part.html.startswith("<main") and "<html" not in part.html
    assert client.get("/queues", hx_request="true", if_none_match=part.headers["etag"]).status == 304
    assert client.get("/queues", if_none_match=part.headers["etag"]).status == 200


def test_an_action_says_on_the_next_page_what_it_did(client: Browser, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue("tests.jobs.basic.noop")
    told = client.press(client.get("/queues"), "Pause")
    assert "Queue sms is paused" in told.text
    assert "Queue sms is paused" not in client.get("/queues").text
    assert conn.exists("rq:paused:sms")
    client.press(client.get("/queues"), "Resume")
    assert not conn.exists("rq:paused:sms")


def test_static_files_are_kept_for_ever_under_names_that_change(app: DashboardApp) -> None:
    for address, one in files().items():
        told = Browser(app).get(f"/static/{address}", accept_encoding="gzip, br")
        assert "immutable" in told.headers["cache-control"]
        assert gzip.decompress(told.body) == one.body == Browser(app).get(f"/static/{address}").body
    assert Browser(app).get("/static/app.000000000000.css").status == 404


def test_own_styles_and_scripts_stay_small() -> None:
    sizes = {one.name: len(one.body) for one in files().values()}
    assert sizes["app.css"] < 20_000 and sizes["app.js"] < 7_000
    assert sizes["chart.js"] < 4_000 and sizes["palette.js"] < 4_500
    scripts = [one for one in files().values() if one.name in ("app.js", "chart.js", "palette.js")]
    assert all(one.body.count(b"\n") < 150 for one in scripts)


def test_pages_are_compressed_for_who_takes_it(client: Browser) -> None:
    told = client.get("/queues", accept_encoding="gzip")
    assert told.headers["content-encoding"] == "gzip" and "Queues" in told.text
    assert "content-encoding" not in client.get("/queues").headers


def test_an_unknown_page_is_answered_as_a_page(client: Browser) -> None:
    told = client.get("/nothing")
    assert told.status == 404 and "text/html" in told.headers["content-type"]


def test_a_redis_that_is_down_is_named_to_viewers_with_what_to_do(tokens: Tokens) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    away = redis.Redis(port=port, retry=None)
    told = Browser(DashboardApp(away, lambda request: ANONYMOUS)).get("/queues")
    assert told.status == 503 and f"Redis at redis://localhost:{port}/0 can't be reached" in told.text
    assert "Start Redis" in told.text and 'href="/queues">Try again' in told.html
    stranger = Browser(DashboardApp(away, Sessions(away, TokenFile(str(tokens.path)))), cookies={"fusion_session": "x" * 43})
    told = stranger.get("/queues")
    assert told.status == 503 and "Redis can't be reached" in told.text and str(port) not in told.html


def test_a_field_that_no_template_places_stands_under_all_fields(client: Browser, conn: redis.Redis) -> None:
    """Nobody has to touch a page for a new field of a view to be seen."""
    Queue("sms", conn).enqueue("tests.jobs.basic.noop", job_id="plain", log_tag="SMS_OTP")
    page = client.get("/queues/sms")
    below = page.html.partition("All fields</summary>")[2]
    assert "<dt title=" in below and ">deferred_count</dt>" in below and ">rq_count</dt>" in below
    assert ">queue_length</dt>" not in below, "its template places it"
    job = client.get("/jobs/plain").html.partition("All fields</summary>")[2]
    assert ">retry_count</dt>" in job and ">id</dt>" not in job
