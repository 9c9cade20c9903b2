"""Every page and action of the table of routes, on a Redis that holds one of everything: those that come later are walked too."""

from __future__ import annotations

import logging
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis

from fusion.dashboard.access import Sessions
from fusion.dashboard.app import DashboardApp
from fusion.dashboard.page import PageAction
from fusion.dashboard.pages import ALL
from fusion.jobs.failure_groups import group_id
from fusion.web.auth import TokenFile, new_token
from tests.browser.house import addresses, filled
from tests.browser.staged import MARKUP, NAMES, stage
from tests.cli.test_every_command import SECRET
from tests.cli.test_output import BAD, EVIL
from tests.dashboard.browser import Browser, Shown
from tests.kit.hands import everything
from tests.web.strangers import MARKER

ACTIONS = [one.path for one in ALL if isinstance(one, PageAction)]
#: What is looked at besides the page of each route: jobs with secrets, one of ours that others hang on; lists that are narrowed, and as files.
MORE = (
    *("/jobs/secret", "/jobs/secret/copy", "/jobs/waiting", "/jobs/j", "/jobs/marked", "/jobs/ours-queued", "/jobs/ours-child"),
    *("/jobs?q=state:failed", "/failures?offset=1", "/audit?who=token:*", "/limits?stuck=1", "/relay?status=failed"),
    *("/operations/new?action=cancel&q=state:queued", "/queues/sms?since=1d"),
    *(f"/export/{kind}/{name}" for kind in ("csv", "jsonl") for name in ("jobs", "queues", "failures", "trash", "audit", "cron")),
)
#: What another's things are called, by the first word of the path of their page; `nobody-...` in place of the marker is nothing's name.
THEIRS = {
    **{noun: f"{MARKER}-{noun}" for noun in NAMES},
    "batches": f"{MARKER}-batch",
    "cron": f"{MARKER}-entry",
    "failures": group_id(f"{MARKER}.Error", f"{MARKER}.mod:fn"),
    "jobs": f"{MARKER}-failed",
    **dict.fromkeys(("limit", "limits"), f"{MARKER}-key"),
    "operations": f"{MARKER}-operation",
    "queues": MARKER,
    "workers": f"{MARKER}-worker.1",
}
NOBODYS = {noun: name.replace(MARKER, "nobody") for noun, name in THEIRS.items()} | {"failures": "0" * 12}
ASKED = (
    "/jobs?q=queue:{}",
    "/jobs?q={}",
    "/jobs?q=key:{}-key",
    "/operations/new?action=requeue&q=queue:{}",
    "/audit?who=token:{}",
)
#: Fields of forms, whatever the form: of which job, and what it is to come to.
FIELDS = {"do": "requeue", "when": "5m", "reason": "why", "duration": "10m", "max_concurrent": "3", "back": "/audit"}


def of_theirs(conn: redis.Redis) -> dict[str, Any]:
    found = everything(conn)
    return {key: found[key] for key in found if MARKER in key or "failed" in key or "trash" in key}


def test_a_token_for_one_queue_finds_nothing_of_another(conn: redis.Redis, tmp_path: Path) -> None:
    stage(conn)
    (token, line), (all_of_it, its_line) = new_token("some", ["admin"], ["sms", "sms-*"]), new_token("all", ["admin"])
    (tmp_path / "tokens").write_text(f"{line}\n{its_line}\n")
    app = DashboardApp(conn, Sessions(conn, TokenFile(str(tmp_path / "tokens"))))
    somebody, who_sees_all = Browser(app).log_in(token), Browser(app).log_in(all_of_it)
    for path in (*addresses(), *MORE):
        who_sees_all.get(path)  # what is kept of it is nothing for others
        for headers in ({}, {"hx_request": "true"}):
            shown = somebody.get(path, **headers)
            assert shown.status in (200, 403, 404), (path, shown.text)
            assert MARKER not in shown.html.replace(path, ""), path
    before = of_theirs(conn)
    pairs = [
        *zip(addresses(THEIRS), addresses(NOBODYS), strict=True),
        *((one.format(MARKER), one.format("nobody")) for one in ASKED),
    ]
    for theirs, nobodys in pairs:
        assert told(somebody.get(theirs)) == told(somebody.get(nobodys)), theirs
    for path in ACTIONS:
        answers = [
            told(somebody.post(filled(path, names), **FIELDS, id=f"{mark}-failed", job_id=f"{mark}-held", q=f"queue:{mark}"))
            for names, mark in ((THEIRS, MARKER), (NOBODYS, "nobody"))
        ]
        assert answers[0] == answers[1], path
    assert of_theirs(conn) == before


def told(shown: Shown) -> tuple[int, str]:
    """An answer, but for the name that was asked for, and what differs from one look to the next."""
    html = shown.html
    for names in (THEIRS, NOBODYS):
        for noun in ("failures", *THEIRS):
            html = html.replace(names[noun], "NAME").replace(MARKER, "NAME").replace("nobody", "NAME")
    html = re.sub(r'name="once" value="\w+"', "", html)
    return shown.status, re.sub(r"<time.*?</time>", "", html)


class Parsed(HTMLParser):
    """What a browser makes of a page: faults, and all that somebody may see of it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.seen: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        ours = tag == "script" and given.get("src", "").startswith("/static/")
        if tag in ("img", "style", "iframe", "object", "base") or (tag == "script" and not ours):
            self.faults.append(self.get_starttag_text() or tag)
        self.faults += [f"{tag} {name}={value}" for name, value in given.items() if name.startswith("on") or name == "style"]
        for name in ("href", "src", "action", "formaction", "hx-get"):
            to = given.get(name, "/")
            inline = tag == "link" and to.startswith("data:")
            if not inline and (not to.startswith(("/", "#")) or to.startswith("//")):
                self.faults.append(f"{tag} {name}={to}")
        if tag == "input" and given.get("type") in ("hidden", "checkbox"):
            given.pop("value", None)  # what a form sends back, to the letter
        self.seen += given.values()

    def handle_data(self, data: str) -> None:
        self.seen.append(data)


def test_pages_escape_texts_of_strangers_and_hide_secrets(
    client: Browser, conn: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    stage(conn)

    def look(path: str, shown: Shown) -> None:
        assert shown.status < 500, (path, shown.text)
        assert SECRET not in shown.html + str(shown.headers), path
        if shown.headers.get("content-type", "").startswith("text/html"):
            page = Parsed(shown.html)
            assert not page.faults, (path, page.faults)
            assert [one for one in BAD if any(one in part for part in page.seen)] == [], path

    hostile = [addresses(dict.fromkeys(NAMES, quote(name, safe=""))) for name in (MARKUP, EVIL, "a/b", "\x00")]
    for path in (*addresses(), *MORE, *(one for some in hostile for one in some)):
        look(path, client.get(path))
    for path in ACTIONS:
        for name in (MARKUP, EVIL):
            fields = {**FIELDS, "id": [name, SECRET[:4] + name], "job_id": name, "q": name, "reason": name}
            look(path, client.post(filled(path, dict.fromkeys(NAMES, quote(name, safe=""))), **fields))
    for path in addresses():
        look(path, client.get(path))
    said = [record.getMessage() for record in caplog.records]
    assert any("/limit/" in one or "limit_pause" in one for one in said), "a log of what was asked"
    assert [one for one in said if SECRET in one or "\n" in one or any(bad in one for bad in BAD)] == []
