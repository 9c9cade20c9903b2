"""Failures: the groups, one of them, what is done to a whole group."""

from __future__ import annotations

from collections.abc import Callable

import redis

from fusion.job import Job
from fusion.jobs.failure_groups import group_id
from fusion.store.write.broker import Broker
from tests.dashboard.browser import Browser
from tests.operations.hands import carry_on
from tests.web.conftest import Fail
from tests.web.conftest import fail as fail
from tests.web.test_failures import fail as failed

GROUP = group_id("builtins.ValueError", "tests.jobs.basic:boom")
HOSTILE = "<img src=x onerror=alert(1)>\u202e"


def test_failure_groups_show_their_trend_and_an_example(client: Browser, conn: redis.Redis, fail: Fail) -> None:
    fail("one")
    fail("two")
    failed(conn, "mail", "m1", kind="app.Refused")
    page = client.get("/failures")
    for told in ("ValueError", "tests.jobs.basic:boom", "app.Refused", "sms 2", "mail 1", "two"):
        assert told in page.text, told
    assert 'aria-label="2 failures in the last 24 hours"' in page.html and f"/failures/{GROUP}" in page.html
    assert "app.Refused" in client.get("/export/csv/failures").html


def test_a_page_without_failures(client: Browser) -> None:
    assert "Nothing has failed" in client.get("/failures").text
    assert client.get(f"/failures/{GROUP}").status == 404


def test_one_group_shows_its_example_masked_and_its_jobs(client: Browser, reader: Browser, fail: Fail) -> None:
    fail("one", args=["Mrs Smith +4915112345678"], reason="ValueError: +4915112345678 is unknown")
    page = client.get(f"/failures/{GROUP}")
    for told in (
        "builtins.ValueError",
        "tests.jobs.basic:boom:49",
        "Traceback",
        "one",
        "The failed job",
        "Requeue…",
        "Delete…",
    ):
        assert told in page.text, told
    assert "4915112345678" not in page.html
    looked = reader.get(f"/failures/{GROUP}")
    assert "one" in looked.text and "Traceback" not in looked.text and "Requeue" not in looked.text and "Smith" not in looked.html


def test_a_group_is_requeued_as_a_whole(client: Browser, conn: redis.Redis, fail: Fail) -> None:
    fail("one")
    fail("two")
    failed(conn, "mail", "m1", kind="app.Refused")
    Broker(conn).clean()
    would = client.get(f"/operations/new?action=requeue&q=group:{GROUP}")
    assert "Requeue 2 failed jobs of queue sms" in would.text
    client.press(would, "Requeue 2 failed jobs of queue sms")
    (operation,) = conn.zrange("rq:operations", 0, -1)
    carry_on(conn, operation.decode())
    assert [Job.fetch(job_id, conn).get_status() for job_id in ("one", "two", "m1")] == ["queued", "queued", "failed"]
    assert "0 failed now" in client.get(f"/failures/{GROUP}").text


def test_groups_are_of_the_queues_that_a_person_may_see(
    restricted: Callable[..., Browser], conn: redis.Redis, fail: Fail
) -> None:
    fail("one")
    failed(conn, "secret", "theirs", kind="app.Refused")
    failed(conn, "secret", "also", kind="builtins.ValueError")
    browser = restricted("sms")
    page = browser.get("/failures")
    assert "ValueError" in page.text and not [hidden for hidden in ("Refused", "secret", "theirs", "also") if hidden in page.text]
    assert browser.get(f"/failures/{group_id('app.Refused', 'app.orders:send')}").status == 404


def test_failure_pages_escape_texts_of_strangers(client: Browser, conn: redis.Redis) -> None:
    failed(conn, "sms", "s1", kind=f"app.{HOSTILE}", reason=HOSTILE)
    Broker(conn).clean()
    pages = [client.get("/failures"), client.get("/failures/" + group_id(f"app.{HOSTILE}", "app.orders:send"))]
    for page in pages:
        assert page.status == 200 and "<img" not in page.html and "\u202e" not in page.html and "&lt;img" in page.html
