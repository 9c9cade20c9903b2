"""Masked values on the page of a job: a form's answer, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from fusion.dashboard import Dashboard
from fusion.dashboard.access import Sessions
from fusion.dashboard.app import DashboardApp
from fusion.web.auth import TokenFile, no_auth
from tests.browser.house import addresses
from tests.dashboard.browser import Browser, audited
from tests.dashboard.test_every_page import THEIRS
from tests.web.harness import Tokens
from tests.web.test_reveal import CANARY, HIDDEN, leave

BUTTON = "Show masked values"


def offers(browser: Browser) -> bool:
    return BUTTON in browser.get("/jobs/a").text


def test_an_admin_sees_them_as_the_answer_to_the_form_alone(client: Browser, conn: redis.Redis) -> None:
    leave(conn)
    page = client.get("/jobs/a")
    assert CANARY not in page.html and "written to the audit" in page.text
    shown = client.press(page, BUTTON)
    assert shown.status == 200 and shown.headers["cache-control"] == "private, no-store" and "etag" not in shown.headers
    assert CANARY in shown.html and HIDDEN not in shown.html and "***" in shown.text
    assert "hx-get" not in shown.html, "it is not read again"
    assert "The audit has an entry" in shown.text and audited(conn, "reveal") == ["token:adminer"]
    assert CANARY not in str(shown.headers) + str(client.cookies)
    assert client.get("/jobs/a/reveal").status == 405
    for path in addresses({**THEIRS, "jobs": "a", "queues": "sms"}):
        assert CANARY not in client.get(path).html, path


def test_who_may_not_has_no_button_and_no_answer(app: DashboardApp, tokens: Tokens, conn: redis.Redis) -> None:
    leave(conn)
    for scope in ("read", "operate"):
        browser = Browser(app).log_in(tokens.by_scope[scope])
        told = browser.send("/jobs/a/reveal")
        assert not offers(browser) and told.status == 403 and CANARY not in told.html
    assert Browser(app).send("/jobs/a/reveal").headers["location"] == "/login"
    assert not audited(conn, "reveal")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
    ],
)
def test_a_form_of_another_site_reveals_nothing(client: Browser, conn: redis.Redis, headers: dict[str, str]) -> None:
    leave(conn)
    told = client.ask("POST", "/jobs/a/reveal", b"back=", headers)
    assert told.status == 403 and "was not sent from a page of this dashboard" in told.text and CANARY not in told.html
    assert not audited(conn, "reveal")


def test_one_for_other_queues_is_told_what_is_told_of_no_job(restricted: Callable[..., Browser], conn: redis.Redis) -> None:
    leave(conn)
    other = restricted("pn")
    answers = [other.post(f"/jobs/{name}/reveal", back="/jobs") for name in ("a", "nobody")]
    assert (
        CANARY not in answers[0].html and "no job &#39;a&#39;" in answers[0].html and "no job &#39;nobody&#39;" in answers[1].html
    )
    assert CANARY in restricted("sms").send("/jobs/a/reveal").html


def test_without_its_entry_nothing_is_shown(client: Browser, conn: redis.Redis) -> None:
    leave(conn)
    conn.set("rq:audit", "junk")
    told = client.send("/jobs/a/reveal")
    assert told.status == 503 and "audit can't be written" in told.text and CANARY not in told.html


def test_a_dashboard_that_only_shows_reveals_nothing(conn: redis.Redis) -> None:
    leave(conn)
    browser = Browser(Dashboard(conn, auth=lambda request: "admin", read_only=True).wsgi)
    assert not offers(browser) and CANARY not in browser.send("/jobs/a/reveal").html and not audited(conn, "reveal")
    assert CANARY in Browser(Dashboard(conn, auth=lambda request: "admin").wsgi, host="any.example").send("/jobs/a/reveal").html


class ThroughProxy:
    """Adds a header of a proxy to all requests."""

    def __init__(self, app: Any, header: str) -> None:
        self.app, self.header = app, header

    def __call__(self, environ: dict[str, Any], start: Any) -> Any:
        return self.app({**environ, self.header: "localhost"}, start)


def test_without_tokens_only_this_machine_itself_sees_them(conn: redis.Redis) -> None:
    leave(conn)
    app = DashboardApp(conn, no_auth)
    here = Browser(app)
    assert offers(here) and CANARY in here.send("/jobs/a/reveal").html
    away = [Browser(ThroughProxy(app, f"HTTP_{name}")) for name in ("X_FORWARDED_HOST", "X_FORWARDED_FOR", "FORWARDED")]
    away.append(Browser(ThroughProxy(app, "REMOTE_ADDR")))
    for browser in away:
        told = browser.send("/jobs/a/reveal")
        assert not offers(browser) and told.status == 403 and CANARY not in told.html
    assert audited(conn, "reveal") == ["anonymous@127.0.0.1"] * 4 + ["anonymous@localhost"]


def test_a_session_that_is_over_reveals_nothing(tokens: Tokens, conn: redis.Redis) -> None:
    leave(conn)
    browser = Browser(DashboardApp(conn, Sessions(conn, TokenFile(str(tokens.path))))).log_in(tokens.by_scope["admin"])
    conn.delete(*conn.keys("rq:session:*"))
    told = browser.send("/jobs/a/reveal")
    assert (told.status, told.headers["location"]) == (303, "/login") and CANARY not in told.html
