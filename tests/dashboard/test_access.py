"""How the dashboard is kept closed, a test a rule. What is true of every page and action is asked of all of them."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Queue
from fusion.dashboard import Dashboard, access
from fusion.dashboard.access import Sessions
from fusion.dashboard.app import POLICY, DashboardApp
from fusion.dashboard.page import Page, PageAction
from fusion.dashboard.pages import ALL
from fusion.dashboard.static_files import files
from fusion.kernel.scope import Scope
from fusion.store.read.audit_inspector import AuditInspector
from fusion.web.auth import TokenFile, new_actor, new_token
from fusion.web.exchange import Actor, Request
from fusion.web.limiter import ATTEMPTS
from tests.dashboard.browser import Browser, Shown
from tests.kit.hands import everything
from tests.web.harness import SCOPES, Tokens
from tests.web.strangers import MARKER, OWN, settle, strangers

PAGES = [one for one in ALL if isinstance(one, Page)]
ACTIONS = [one for one in ALL if isinstance(one, PageAction)]
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def filled(path: str, name: str = "nobody") -> str:
    return re.sub(r"\{\w+\}", name, path)


def data(conn: redis.Redis) -> dict[str, Any]:
    """All but sessions and refused requests in the audit."""
    found = everything(conn)
    return {key: found[key] for key in found if not key.startswith(("rq:session:", "rq:audit", "rq:events:said:"))}


def offered(shown: Shown) -> list[str]:
    """Where the buttons of a page send something to."""
    forms = re.findall(r'<form method="post" action="([^"]*)"[^>]*>(.*?)</form>', shown.html, re.DOTALL)
    assert len(forms) == shown.html.count('method="post"')
    found = [path for path, inner in forms if re.search(r'<button(?! type="button")', inner)] + re.findall(
        r'formaction="([^"]*)"', shown.html
    )
    return [path for path in found if path != "/logout"]


def sent(shown: Shown) -> str:
    return shown.headers["set-cookie"]


# -- the way in


def test_without_a_session_nothing_is_shown_or_done(app: DashboardApp, conn: redis.Redis) -> None:
    nobody = Browser(app, cookies={"fusion_session": "guessed"})
    for one in ALL:
        told = nobody.get(filled(one.path)) if isinstance(one, Page) else nobody.send(filled(one.path))
        assert (told.status, told.headers["location"], told.body) == (303, "/login", b""), one.path
    assert not data(conn)


def test_a_wrong_token_is_refused_and_the_eleventh_within_a_minute_waits(app: DashboardApp, tokens: Tokens) -> None:
    browser = Browser(app)
    for _ in range(ATTEMPTS):
        told = browser.send("/login", token="fusion_wrong")
        assert told.status == 401 and "not known" in told.text and "Token" in told.text
    told = browser.send("/login", token="fusion_wrong")
    assert (told.status, 0 < int(told.headers["retry-after"]) <= 60) == (429, True)
    assert "fusion_wrong" not in told.html and not browser.cookies
    assert browser.send("/login", token=tokens.by_scope["read"]).status == 303  # nobody locks out the others


def test_redis_knows_a_session_and_its_token_by_their_hashes_alone(app: DashboardApp, tokens: Tokens, conn: redis.Redis) -> None:
    browser = Browser(app).log_in(tokens.by_scope["read"])
    secret = browser.cookies["fusion_session"]
    (key,) = conn.keys("rq:session:*")
    assert key.decode() == f"rq:session:{hashlib.sha256(secret.encode()).hexdigest()}"
    assert len(secret) >= 43
    whole = str(everything(conn))
    assert secret not in whole and tokens.by_scope["read"] not in whole
    assert 12 * 3600 - 60 < conn.ttl(key) <= 12 * 3600


def test_a_session_written_into_redis_by_hand_is_refused(app: DashboardApp, tokens: Tokens, conn: redis.Redis) -> None:
    def key_of(secret: str) -> str:
        return f"rq:session:{hashlib.sha256(secret.encode()).hexdigest()}"

    def status(secret: str, value: bytes | str) -> int:
        conn.set(key_of(secret), value, ex=9)
        return Browser(app, cookies={"fusion_session": secret}).get("/queues").status

    admin, reader = (Browser(app).log_in(tokens.by_scope[scope]) for scope in ("admin", "read"))
    own, other = (one.cookies["fusion_session"] for one in (reader, admin))
    mine, theirs = (conn.get(key_of(secret)) or b"" for secret in (own, other))
    read, wide = json.loads(mine), json.loads(theirs)
    assert status("guessed", theirs) == 303, "another's session under a key of one's own"
    assert status(own, theirs) == 303, "in place of one's own"
    assert status(own, json.dumps(read | {"token": wide["token"]})) == 303, "one's own for another token"
    assert status(own, json.dumps(read | {"until": str(int(read["until"]) + 1)})) == 303, "longer"
    digest = hashlib.sha256(tokens.by_scope["admin"].encode()).hexdigest()
    assert digest not in str(everything(conn)), "what seals is not in Redis"
    for value in (
        json.dumps({"token": digest}),
        "{",
        "[" * 100_000,
        "null",
        "[]",
        "7",
        '{"token": 7}',
        '{"token": "\\u00e9"}',
        "{}",
        b"\xff",
    ):
        assert status("guessed", value) == 303, value[:20]
    assert status(own, json.dumps({"token": digest})) == 303, "as sessions were before they had a seal"
    assert status(own, mine) == 200


def test_a_session_is_over_though_redis_keeps_it(app: DashboardApp, tokens: Tokens, conn: redis.Redis, monkeypatch: Any) -> None:
    browser = Browser(app).log_in(tokens.by_scope["read"])
    (key,) = conn.keys("rq:session:*")
    conn.persist(key)
    for hours, status in ((11, 200), (12.01, 303)):
        later = datetime.now(timezone.utc) + timedelta(hours=hours)
        monkeypatch.setattr(access, "now", lambda later=later: later)
        assert browser.get("/queues").status == status


def test_a_session_ends_when_its_token_is_given_other_scopes_or_queues(conn: redis.Redis, tmp_path: Path) -> None:
    path = tmp_path / "tokens.txt"
    token, line = new_token("anna", ["read"])
    path.write_text(f"{line}\n")
    app = DashboardApp(conn, Sessions(conn, TokenFile(str(path))))
    anna = Browser(app).log_in(token)
    for changed, status in (
        (line + "\n#", 200),
        (line.replace(":read:", ":admin:"), 303),
        (line.replace(":read:", ":read@sms:"), 303),
    ):
        path.write_text(f"{changed}\n{new_token('bert', ['read'])[1]}\n")
        assert anna.get("/queues").status == status, changed


def test_the_cookie_is_for_this_mount_alone(conn: redis.Redis, tokens: Tokens) -> None:
    app = DashboardApp(conn, Sessions(conn, TokenFile(str(tokens.path))), hosts=None)
    cookie = sent(Browser(app, prefix="/fusion").send("/fusion/login", token=tokens.by_scope["read"]))
    parts = cookie.split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/fusion", "Max-Age=43200"} < set(parts) and "Secure" not in parts
    from fusion.web.hosts import Hosts

    known = DashboardApp(conn, Sessions(conn, TokenFile(str(tokens.path))), hosts=Hosts(["jobs.example.com"]))
    cookie = sent(Browser(known, host="jobs.example.com").send("/login", token=tokens.by_scope["read"]))
    assert {"Secure", "Path=/"} < set(cookie.split("; "))


def test_two_mounts_on_one_host_have_separate_sessions(app: DashboardApp, tokens: Tokens) -> None:
    inner = Browser(app).log_in(tokens.by_scope["read"]).cookies["fusion_session"]
    given = {
        "cookie": f'other={{"a":1}}; fusion_session={inner}; fusion_session=of-the-outer'
    }  # browsers send the nearer one first
    assert Browser(app).ask("GET", "/queues", headers=given).status == 200


def test_no_cookie_breaks_a_page(client: Browser) -> None:
    own = client.cookies["fusion_session"]
    for text in ("[" * 3000, '{"a":' * 700, "[[],1]", "{}", "7", "\udcff", '["\\ud800", 0]', "[1,2,3]"):
        said = urlsafe_b64encode(text.encode("utf-8", "surrogateescape")).decode()
        for cookie in (f"fusion_said={said}", f"fusion_said={text[:3000]}", "fusion_said=\xff"):
            headers = {"cookie": f"{cookie}; fusion_session={own}"}
            assert client.ask("GET", "/queues", headers=headers).status == 200, text[:20]


def test_a_session_ends_after_twelve_hours_and_with_logging_out(app: DashboardApp, tokens: Tokens, conn: redis.Redis) -> None:
    browser = Browser(app).log_in(tokens.by_scope["read"])
    kept = dict(browser.cookies)
    browser.get("/queues")
    (key,) = conn.keys("rq:session:*")
    assert conn.ttl(key) <= 12 * 3600  # looking does not prolong it
    told = browser.send("/logout")
    assert "Max-Age=0" in sent(told) and told.headers["location"] == "/login"
    assert Browser(app, cookies=kept).get("/queues").status == 303
    browser.log_in(tokens.by_scope["read"])
    conn.delete(*conn.keys("rq:session:*"))  # as Redis does when its time is over
    assert browser.get("/queues").status == 303


def test_a_session_ends_with_the_line_of_its_token_and_with_its_time(conn: redis.Redis, tmp_path: Path) -> None:
    path = tmp_path / "tokens.txt"
    (one, its_line), (other, line) = (new_token(name, ["read"]) for name in ("anna", "bert"))
    path.write_text(f"{its_line}\n{line}\n")
    app = DashboardApp(conn, Sessions(conn, TokenFile(str(path))))
    anna, bert = Browser(app).log_in(one), Browser(app).log_in(other)
    path.write_text(f"{line}:expires=2020-01-01T00:00:00Z\n")
    assert (anna.get("/queues").status, bert.get("/queues").status) == (303, 303)
    assert Browser(app).send("/login", token=other).status == 401
    soon = datetime.now(timezone.utc) + timedelta(hours=1)
    path.write_text(f"{line}:expires={soon:%Y-%m-%dT%H:%M:%SZ}\n# longer\n")
    assert (anna.get("/queues").status, bert.get("/queues").status) == (303, 200)


def test_an_unknown_host_is_refused(app: DashboardApp, client: Browser, tokens: Tokens) -> None:
    rebound = Browser(app, host="evil.example", cookies=client.cookies)
    assert [rebound.get(path).status for path in ("/", "/queues", "/login")] == [421] * 3
    assert rebound.send("/login", token=tokens.by_scope["read"]).status == 421
    assert rebound.send("/queues/sms/pause").status == 421


# -- where a change comes from

FOREIGN = {
    "says nothing": {},
    "another origin": {"origin": "https://evil.example"},
    "no origin": {"origin": "null"},
    "an origin that is none": {"origin": "http://["},
    "another port": {"origin": "http://localhost:81"},
    "another site": {"sec-fetch-site": "cross-site", "origin": "http://localhost"},
    "a neighbour": {"sec-fetch-site": "same-site", "origin": "http://localhost"},
    "typed": {"sec-fetch-site": "none", "origin": "http://localhost"},
}


@pytest.mark.parametrize("given", FOREIGN.values(), ids=FOREIGN)
def test_a_request_from_a_foreign_page_changes_nothing(
    client: Browser, conn: redis.Redis, given: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    Queue("sms", conn).enqueue("tests.jobs.basic.noop")
    before = data(conn)
    for path in ("/queues/sms/pause", "/logout", "/login"):
        told = client.ask("POST", path, b"back=/", given)
        assert told.status == 403 and "not sent from a page" in told.text, path
    assert data(conn) == before and client.get("/queues").status == 200
    assert "incident" not in caplog.text


def test_a_browser_that_does_not_say_where_a_form_stands_is_known_by_its_origin(client: Browser, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue("tests.jobs.basic.noop")
    assert client.ask("POST", "/queues/sms/pause", b"back=/", {"origin": "http://localhost"}).status == 303
    assert conn.exists("rq:paused:sms")


def test_a_change_is_a_form_that_was_posted(client: Browser, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue("tests.jobs.basic.noop")
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        assert client.ask(method, "/queues/sms/pause", headers={"sec-fetch-site": "same-origin"}).status == 405
    assert not conn.exists("rq:paused:sms")


@pytest.mark.parametrize(
    "back", ["//evil.example", "/\\evil.example", "https://evil.example", "\\\\evil.example", "/\r\nX: y", "", "javascript:x"]
)
def test_the_way_back_leads_to_this_service(client: Browser, conn: redis.Redis, back: str) -> None:
    Queue("sms", conn).enqueue("tests.jobs.basic.noop")
    assert client.send("/queues/sms/pause", back=back).headers["location"] == "/"


# -- who may do what


def test_every_page_and_action_asks_for_its_scope(app: DashboardApp, tokens: Tokens, conn: redis.Redis) -> None:
    settle(conn, OWN, "ours")
    browsers = {scope: Browser(app).log_in(tokens.by_scope[scope]) for scope in SCOPES}
    before = data(conn)
    for one in ALL:
        for scope in SCOPES[: SCOPES.index(one.scope)]:
            browser = browsers[scope]
            told = browser.get(filled(one.path)) if isinstance(one, Page) else browser.send(filled(one.path, "ours-queued"))
            assert told.status == 403 and f"the scope {one.scope}" in told.text, (one.path, scope)
    assert data(conn) == before
    for page in PAGES:
        assert browsers[page.scope].get(filled(page.path)).status in (200, 404), page.path


def test_no_form_offers_what_who_looks_may_not_do(app: DashboardApp, tokens: Tokens, conn: redis.Redis) -> None:
    settle(conn, OWN, "ours")
    for scope in ("read", "operate"):
        browser = Browser(app).log_in(tokens.by_scope[scope])
        weaker = [one for one in ACTIONS if SCOPES.index(one.scope) > SCOPES.index(scope)]
        for page in PAGES:
            for path in offered(browser.get(filled(page.path, "ours-entry" if "cron" in page.path else "ours-queued"))):
                assert not any(re.fullmatch(re.sub(r"\{\w+\}", ".+", one.path), path) for one in weaker), (page.path, path)


def test_a_token_for_some_queues_sees_no_other_queue_on_any_page(restricted: Callable[..., Browser], conn: redis.Redis) -> None:
    settle(conn, OWN, "ours")
    strangers(conn)
    somebody, before = restricted(OWN), data(conn)
    for page in PAGES:
        shown = somebody.get(filled(page.path))
        assert shown.status == (403 if page.fleet else shown.status) and shown.status < 500, page.path
        assert MARKER not in shown.html, page.path
    for action in ACTIONS:
        told = somebody.send(filled(action.path, MARKER), id=f"{MARKER}-queued")
        assert told.status in (303, 403, 404, 409, 422), action.path
    assert data(conn) == before


def test_a_dashboard_that_only_shows_changes_nothing(conn: redis.Redis) -> None:
    settle(conn, OWN, "ours")
    before = data(conn)
    browser = Browser(Dashboard(conn, auth=lambda request: "admin", read_only=True).wsgi)
    for action in ACTIONS:
        told = browser.send(filled(action.path, "ours-queued"))
        assert told.status == 403 and "only shows" in told.text, action.path
    assert data(conn) == before
    for page in PAGES:
        shown = browser.get(filled(page.path, "ours-entry" if "cron" in page.path else "ours-queued"))
        assert not offered(shown) and (shown.status == 403) == (page.scope != "read"), page.path


# -- in another application


def test_without_a_function_that_says_who_it_is_nobody_gets_in(conn: redis.Redis) -> None:
    for auth, words in ((None, "mount it with auth="), (lambda request: None, "no access"), (lambda request: "", "no access")):
        browser = Browser(Dashboard(conn, auth=auth).wsgi)
        for one in ALL:
            told = browser.get(filled(one.path)) if isinstance(one, Page) else browser.send(filled(one.path))
            assert told.status == 403 and words in told.text, one.path
        assert browser.get("/login").status == 404
    assert not data(conn)


@pytest.mark.parametrize("scope", SCOPES)
def test_a_scope_is_an_answer(conn: redis.Redis, scope: str) -> None:
    Queue("sms", conn).enqueue("tests.jobs.basic.noop")
    browser = Browser(Dashboard(conn, auth=lambda request: scope).wsgi, host="any.example")
    assert browser.get("/queues").status == 200
    assert browser.send("/queues/sms/pause").status == (303 if scope == "admin" else 403)


@pytest.mark.parametrize("answer", [True, "superuser", 7])
def test_an_answer_that_is_none_lets_nobody_in(conn: redis.Redis, answer: Any) -> None:
    told = Browser(Dashboard(conn, auth=lambda request: answer).wsgi).get("/queues")
    assert told.status == 500 and "sms" not in told.text


def test_an_actor_is_an_answer_and_changes_stand_under_the_name_of_who_asks(
    conn: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    Queue("sms", conn).enqueue("tests.jobs.basic.noop")
    Queue("email", conn).enqueue("tests.jobs.basic.noop")
    caplog.set_level(logging.DEBUG)

    def name(request: Request) -> str:
        return str(request.origin["HTTP_X_USER"])

    some = Actor("staff", new_actor("", "admin").scopes, Scope(("sms",)))
    for auth, actor, who in (
        (lambda request: "admin", name, "anna\\nb"),
        (lambda request: "admin", None, "application"),
        (lambda request: some, name, "anna\\nb"),
        (lambda request: some, None, "staff"),
        (lambda request: Actor("x", some.scopes, called="django:7"), None, "django:7"),
    ):
        browser = Browser(Dashboard(conn, auth=auth, actor=actor).wsgi)
        assert browser.send("/queues/sms/pause", {"x-user": "anna\nb"}).status == 303
        assert AuditInspector(conn).entries()[0].who == who
    browser = Browser(Dashboard(conn, auth=lambda request: some).wsgi)
    assert "email" not in browser.get("/queues").html
    browser.send("/queues/email/pause")
    assert not conn.exists("rq:paused:email")
    assert all("\n" not in record.getMessage() for record in caplog.records)


# -- what goes out


def test_every_answer_says_what_a_browser_may_do_with_it(app: DashboardApp, client: Browser) -> None:
    nobody = Browser(app)
    (static, *_) = files()
    answers = [client.get(filled(page.path)) for page in PAGES]
    answers += [
        client.get("/nothing"),
        client.get("/queues", hx_request="true"),
        client.send("/queues/nobody/pause"),
        nobody.get("/queues"),
    ]
    answers += [
        nobody.get("/login"),
        nobody.send("/login", token="x"),
        nobody.get(f"/static/{static}"),
        nobody.get("/static/none.js"),
    ]
    answers += [
        Browser(app, host="evil.example").get("/"),
        client.ask("POST", "/queues/sms/pause", b"a=b"),
        client.ask("PUT", "/queues"),
    ]
    client.get("/audit")  # tells what the action did
    tag = client.get("/audit").headers["etag"]
    answers += [client.get("/audit", if_none_match=tag), client.send("/logout")]
    assert {one.status for one in answers} >= {200, 303, 304, 401, 403, 404, 405, 421}
    for one in answers:
        assert {name: one.headers.get(name) for name in HEADERS} == HEADERS
    assert all("private" in one.headers["cache-control"] for one in answers if "immutable" not in one.headers["cache-control"])
    assert "unsafe" not in POLICY and "http" not in POLICY


def test_pages_hold_no_script_style_or_address_of_their_own(client: Browser, conn: redis.Redis) -> None:
    settle(conn, OWN, "ours")
    for page in PAGES:
        shown = client.get(filled(page.path, "ours-entry" if "cron" in page.path else "ours-queued")).html
        assert not re.search(r"<script(?![^>]* src=)|<style| style=|\son\w+=", shown), page.path
        assert not re.search(r'(?:src|href|action)="(?:https?:)?//', shown), page.path


def test_secrets_stand_in_no_page_and_no_line_of_a_log(
    app: DashboardApp, tokens: Tokens, conn: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    Queue("sms", conn).enqueue(
        "tests.jobs.basic.noop", kwargs={"password": "hunter2"}, job_id="j", description="login(password='hunter2')"
    )
    browser = Browser(app)
    assert browser.send("/login", token="fusion_not-a-token").status == 401
    browser.log_in(tokens.by_scope["admin"])
    shown = "".join(browser.get(filled(page.path, "j")).html for page in PAGES)
    for action in ACTIONS:
        browser.send(filled(action.path, "j"), id="j")
    shown += "".join(browser.get(filled(page.path, "j")).html for page in PAGES)
    logged = "\n".join(record.getMessage() for record in caplog.records)
    for secret in (tokens.by_scope["admin"], "not-a-token", browser.cookies["fusion_session"], "hunter2"):
        assert secret not in logged and secret not in shown
    assert "/queues" in logged
