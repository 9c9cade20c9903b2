"""The page of jobs: what it shows, the query's errors, what is done to those that are selected, files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from itertools import count
from urllib.parse import quote

import pytest
import redis

from fusion import Queue
from fusion.dashboard.filters import term
from fusion.dashboard.pages.jobs import by_state
from fusion.job import Job
from fusion.store.query.grammar import Query
from fusion.store.read.search_inspector import LOOKING, SearchInspector
from tests.dashboard.browser import Browser
from tests.store.search_hands import store
from tests.web.conftest import Fail
from tests.web.conftest import fail as fail

NOOP = "tests.jobs.basic.noop"
HOSTILE = "<img src=x onerror=alert(1)>\u202e"


def _audited(conn: redis.Redis) -> list[tuple[str, str, str]]:
    entries = [fields for _, fields in conn.xrange("rq:audit")]
    return [tuple(fields.get(name, b"").decode() for name in (b"action", b"target", b"who")) for fields in entries]  # type: ignore[misc]


def test_the_jobs_page_explains_its_query_and_offers_actions(client: Browser, conn: redis.Redis, fail: Fail) -> None:
    fail("broken", log_tag="SMS_OTP")
    Queue("mail", conn).enqueue(NOOP, job_id="waits", priority="high")
    page = client.get("/jobs")
    assert "broken" in page.text and "waits" in page.text and "SMS_OTP" in page.text and "high" in page.text
    found = client.get("/jobs?q=" + quote("state:failed queue:sms"))
    assert "broken" in found.text and "waits" not in found.text and "builtins.ValueError" in found.text
    assert (
        'value="state:failed queue:sms"' in found.html
        and "/operations/new?action=requeue&amp;q=state%3Afailed+queue%3Asms" in found.html
    )
    for offered in ("queue:mail", "error:ValueError", "state:blocked", "priority:low", "older:"):
        assert f'<option value="{offered}">' in found.html
    assert "No job fits" in client.get("/jobs?q=id:nobody").text


def test_a_priority_over_the_highest_name_is_high_and_its_number_said(client: Browser, conn: redis.Redis) -> None:
    for number in (2, 101):
        Queue("mail", conn).enqueue(NOOP, job_id=f"p{number}", priority=number)
    assert "high (101)" in client.get("/jobs").text and "high (101) priority" in client.get("/jobs/p101").text
    assert "high (2)" not in client.get("/jobs").text


@pytest.mark.parametrize(
    ("query", "verbs"),
    [
        ("state:finished", ["delete"]),
        ("state:started", ["cancel", "stop"]),
        ("state:failed,finished", ["delete"]),
        ("queue:sms is:quarantined", ["requeue", "delete", "quarantine"]),
        ("queue:sms", ["requeue", "cancel", "stop", "quarantine", "reprioritise", "delete"]),
        ("", []),
    ],
)
def test_all_that_match_are_offered_what_can_be_done_to_them(client: Browser, query: str, verbs: list[str]) -> None:
    page = client.get("/jobs?q=" + quote(query))
    assert sorted(re.findall(r"operations/new\?action=(\w+)", page.html)) == sorted(verbs)


def test_an_empty_page_with_more_behind_it_says_how_to_go_on(
    client: Browser, conn: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(conn, "failed", {f"job-{n}": n for n in range(1000)}, error_class="ValueError")
    monkeypatch.setattr(SearchInspector, "clock", staticmethod(count(0, LOOKING * 0.6).__next__))
    page = client.get("/jobs?q=" + quote("state:failed error:KeyError"))
    assert "None of the jobs read so far matches" in page.text and "No job fits" not in page.text
    assert "Looked at the newest 602 of 1,000 failed jobs; the next page goes on." in page.text and "Look further" in page.text
    to = unescape(re.findall(r'href="([^"]*)" rel="next"', page.html)[0])
    assert "No further job fits" in client.get(to).text


def test_actions_on_selected_jobs_are_confirmed_with_their_number(client: Browser, fail: Fail) -> None:
    fail("one")
    asked = re.findall('data-confirm="([^"]*)"', client.get("/jobs?q=state:failed").html)
    assert len(asked) == 6 and all("({n} of state:failed)" in one for one in asked)


def test_a_page_without_jobs(client: Browser) -> None:
    assert "There are no jobs." in client.get("/jobs").text


def test_the_error_of_a_query_is_shown_at_its_field(client: Browser) -> None:
    page = client.get("/jobs?q=sttate:failed")
    assert page.status == 200 and "did you mean 'state'" in page.text
    assert 'aria-invalid="true" aria-describedby="wrong"' in page.html and 'value="sttate:failed"' in page.html


def test_all_job_pages_escape_texts_of_strangers(client: Browser, conn: redis.Redis, fail: Fail) -> None:
    fail("broken", log_tag=HOSTILE, description=HOSTILE, reason=f"ValueError: {HOSTILE}")
    conn.hset("rq:job:broken", mapping={"error_class": HOSTILE, "error_frame": HOSTILE, "worker_name": HOSTILE})
    for page in (client.get("/jobs"), client.get("/jobs?q=" + quote(HOSTILE[:-1])), client.get("/jobs/broken")):
        assert page.status == 200 and "<img" not in page.html and "\u202e" not in page.html and "&lt;img" in page.html


def test_pages_follow_each_other(client: Browser, conn: redis.Redis) -> None:
    for number in range(55):
        Queue("sms", conn).enqueue(NOOP, job_id=f"job-{number}")
    first = client.get("/jobs?q=queue:sms")
    following = first.html.split('rel="next"')[0].rsplit('href="', 1)[1].split('"')[0].replace("&amp;", "&")
    last = client.get(following)
    assert "job-0" in first.text and "job-54" in last.text and "job-0 " not in last.text
    assert "First page" in last.text and "Next page" not in last.text


@pytest.mark.parametrize(("do", "status"), [("requeue", "queued"), ("delete", None)])
def test_something_is_done_to_each_selected_job(
    client: Browser, conn: redis.Redis, fail: Fail, do: str, status: str | None
) -> None:
    ids = [fail("one"), fail("two")]
    fail("three")
    said = client.post("/jobs", do=do, id=[*ids, ids[0]], back="/jobs")
    assert f"2 jobs {do.rstrip('e')}ed" in said.text
    assert [conn.hget(f"rq:job:{job_id}", "status") for job_id in ids] == [status and status.encode()] * 2
    assert Job.fetch("three", conn).get_status() == "failed"
    assert [entry for entry in _audited(conn) if entry[0]] == [(do, job_id, "token:adminer") for job_id in ids]


def test_refused_jobs_are_listed_with_their_reasons(client: Browser, conn: redis.Redis, fail: Fail) -> None:
    fail("one")
    Queue("sms", conn).enqueue(NOOP, job_id="waits")
    said = client.post("/jobs", do="requeue", id=["one", "waits", "gone"], back="/jobs")
    assert "1 of 3 requeued. waits: job waits is queued" in said.text and "gone: no job" in said.text


@pytest.mark.parametrize(
    ("fields", "told"), [({"do": "dance", "id": "one"}, "Choose what"), ({"do": "requeue"}, "Select the jobs")]
)
def test_a_form_that_says_nothing_changes_nothing(client: Browser, fields: dict[str, str], told: str) -> None:
    assert told in client.post("/jobs", back="/jobs", **fields).text


def test_a_reader_has_no_buttons_and_its_requests_are_refused(reader: Browser, conn: redis.Redis, fail: Fail) -> None:
    fail("one")
    page = reader.get("/jobs?q=state:failed")
    assert "one" in page.text and "Requeue" not in page.text and "checkbox" not in page.html
    assert reader.send("/jobs", do="requeue", id="one").status == 403
    assert Job.fetch("one", conn).get_status() == "failed"


def test_to_delete_needs_more_than_to_operate(restricted: Callable[..., Browser], conn: redis.Redis, fail: Fail) -> None:
    fail("one")
    browser = restricted("sms", scope="operate")
    assert ">Delete<" not in browser.get("/jobs").html and ">Requeue<" in browser.get("/jobs").html
    assert browser.send("/jobs", do="delete", id="one").status == 403
    assert conn.exists("rq:job:one")


def test_jobs_of_other_queues_are_not_there(restricted: Callable[..., Browser], conn: redis.Redis, fail: Fail) -> None:
    fail("mine")
    Queue("secret", conn).enqueue(NOOP, job_id="theirs")
    browser = restricted("sms")
    page = browser.get("/jobs")
    assert "mine" in page.text and "theirs" not in page.text and "secret" not in page.text
    assert "theirs" not in browser.get("/jobs?q=queue:secret").text.replace("queue:secret", "")
    assert "theirs: no job" in browser.post("/jobs", do="cancel", id="theirs", back="/jobs").text
    assert Job.fetch("theirs", conn).get_status() == "queued"
    assert "theirs" not in browser.get("/export/jsonl/jobs").html


def test_a_list_is_handed_on_as_a_file(client: Browser, reader: Browser, fail: Fail) -> None:
    fail("one")
    fail("two")
    lines = reader.get("/export/jsonl/jobs?query=state:failed")
    assert {json.loads(line)["id"] for line in lines.html.splitlines()} == {"one", "two"}
    told = client.get("/export/csv/jobs?query=" + quote("id:one"))
    assert told.headers["content-type"].startswith("text/csv") and 'filename="jobs.csv"' in told.headers["content-disposition"]
    assert told.html.count("\r\n") == 2 and "sms" in told.html
    assert client.get("/export/json/jobs").status == 404 and client.get("/export/csv/nothing").status == 404
    assert client.get("/export/csv/jobs/one").status == 422 and client.get("/export/csv/jobs?query=sttate:x").status == 422


def test_a_value_is_written_so_that_it_means_itself() -> None:
    for value in ("plain", 'with "quotes"', "a,b c", "star*?", "back\\slash"):
        assert Query.parse(term("tag", value)).value("tag") == value


def test_the_states_keep_the_rest_of_the_query() -> None:
    assert dict(by_state("state:failed queue:sms newer:1h"))["blocked"] == "state:blocked queue:sms newer:1h"
    assert dict(by_state("queue:sms"))["all"] == "queue:sms" and dict(by_state("sttate:x"))["all"] == ""


def test_the_page_of_a_job_has_its_log_for_those_who_operate(
    client: Browser, reader: Browser, conn: redis.Redis, fail: Fail
) -> None:
    fail("broken")
    now = int(conn.time()[0]) * 1000
    conn.hset("rq:log:broken", mapping={"lines": f"{now} one {HOSTILE}", "left_out": 3, "attempt": 1, "at": now + 1000})
    page = client.get("/jobs/broken")
    assert 'aria-label="Log"' in page.html and "one <img" in page.text and "3 lines before these" in page.text
    assert "<img src=x" not in page.html
    assert 'aria-label="Log"' not in reader.get("/jobs/broken").html and "one <img" not in reader.get("/jobs/broken").text
