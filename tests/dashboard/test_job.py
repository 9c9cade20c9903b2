"""The page of one job: all that `job show` tells, to whom; what is done to it; edited copies; jobs in the trash."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable

import pytest
import redis

from fusion import Queue
from fusion.dashboard.access import Sessions
from fusion.dashboard.app import DashboardApp
from fusion.job import Job
from fusion.store.write.broker import Broker
from fusion.web.auth import TokenFile
from tests.dashboard.browser import Browser
from tests.kit.hands import Hand
from tests.web.conftest import Fail
from tests.web.conftest import fail as fail
from tests.web.harness import Tokens

NOOP, ECHO = "tests.jobs.basic.noop", "tests.jobs.basic.echo"


def _area(page: str, name: str) -> str:
    return html.unescape(page.split(f'<textarea id="{name}"')[1].split(">", 1)[1].split("</textarea>")[0])


def test_it_shows_the_error_the_way_and_the_masked_arguments(client: Browser, fail: Fail) -> None:
    fail("broken", "tests.jobs.basic.boom", args=["customer +4915112345678"], reason="ValueError: +4915112345678 is unknown")
    page = client.get("/jobs/broken")
    for told in (
        "builtins.ValueError",
        "tests.jobs.basic:boom:49",
        "Traceback",
        "Timeline",
        "failed",
        "failing.0",
        "Arguments",
        "unsigned",
    ):
        assert told in page.text, told
    assert "4915112345678" not in page.html and "ValueError: +*" in page.text
    assert "/failures/" in page.html


def test_a_reader_does_not_see_the_arguments_of_a_job(reader: Browser, fail: Fail) -> None:
    fail(
        "broken",
        "tests.jobs.basic.boom",
        args=["Mrs Smith"],
        reason="ValueError: Mrs Smith is unknown",
        description="for Mrs Smith",
    )
    page = reader.get("/jobs/broken")
    assert "builtins.ValueError" in page.text and "Timeline" in page.text
    assert "Arguments" not in page.text and "Smith" not in page.html and "Traceback" not in page.text
    assert {form[0] for form in page.forms() if form[0]} == {"/find", "/logout"}
    for path in ("requeue", "delete", "copy"):
        assert reader.send(f"/jobs/broken/{path}").status == 403
    assert reader.get("/jobs/broken/copy").status == 403


def test_a_read_only_dashboard_shows_what_its_reader_may_know(app: DashboardApp, client: Browser, fail: Fail) -> None:
    fail("broken")
    app._read_only = True
    page = client.get("/jobs/broken")
    assert "Arguments" in page.text and "Requeue" not in page.text
    assert client.send("/jobs/broken/requeue").status == 403


def test_why_it_waits_and_what_waits_for_it(client: Browser, conn: redis.Redis) -> None:
    queue = Queue("sms", conn)
    queue.enqueue(NOOP, job_id="first")
    queue.enqueue(NOOP, job_id="second", depends_on=["first"])
    queue.enqueue(NOOP, job_id="third", depends_on=["second"])
    page = client.get("/jobs/second")
    assert (
        "Why it waits" in page.text
        and re.search(r"1 before tests\.jobs\.basic\. noop first", page.text)
        and re.search(r"1 after tests\.jobs\.basic\. noop third", page.text)
    )


def test_a_running_job_shows_its_run_and_can_be_stopped(client: Browser, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(NOOP, job_id="runs", job_timeout=90)
    hand = Hand(Broker(conn), "sms", name="busy.1")
    hand.take()
    page = client.get("/jobs/runs")
    assert "busy.1" in page.text and "alive" in page.text and "1m 30s" in page.text
    assert "got the request to stop" in client.press(page, "Stop").text
    assert "Request" in client.get("/jobs/runs").text
    hand.broker.deregister(hand.name, hand.incarnation)


@pytest.mark.parametrize(("label", "told", "status"), [("Requeue", "was put back", "queued"), ("Delete", "was deleted", None)])
def test_a_button_does_it(client: Browser, conn: redis.Redis, fail: Fail, label: str, told: str, status: str | None) -> None:
    fail("broken")
    page = client.press(client.get("/jobs/broken"), label)
    assert told in page.text
    assert conn.hget("rq:job:broken", "status") == (status.encode() if status else None)
    (entry,) = [fields for _, fields in conn.xrange("rq:audit") if b"who" in fields]
    assert (entry[b"who"], entry[b"target"]) == (b"token:adminer", b"broken")


def test_a_waiting_job_is_canceled(client: Browser, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(NOOP, job_id="waits")
    assert "is canceled" in client.press(client.get("/jobs/waits"), "Cancel").text
    assert Job.fetch("waits", conn).get_status() == "canceled"


def test_a_deleted_job_is_brought_back_from_its_own_page(client: Browser, conn: redis.Redis, fail: Fail) -> None:
    fail("broken")
    gone = client.press(client.get("/jobs/broken"), "Delete")
    assert gone.status == 404 and "the trash keeps it until" in gone.text
    assert "is back" in client.press(gone, "Restore").text
    assert Job.fetch("broken", conn).get_status() == "failed"


def test_an_unknown_job_is_404(client: Browser) -> None:
    for address in ("/jobs/nobody", "/jobs/what%20is%20this", "/jobs/nobody/copy"):
        assert client.get(address).status == 404
    assert "never existed" in client.get("/jobs/nobody").text


def test_a_job_of_another_queue_is_not_there(restricted: Callable[..., Browser], conn: redis.Redis, fail: Fail) -> None:
    Queue("secret", conn).enqueue(NOOP, job_id="theirs")
    browser = restricted("sms")
    page = browser.get("/jobs/theirs")
    assert page.status == 404 and page.text.replace("theirs", "nobody") == browser.get("/jobs/nobody").text
    Job.fetch("theirs", conn).delete()
    assert "secret" not in browser.get("/jobs/theirs").text and "Restore" not in browser.get("/jobs/theirs").text
    for path in ("cancel", "stop", "requeue", "restore"):
        browser.send(f"/jobs/theirs/{path}")
    assert not conn.exists("rq:job:theirs")


@pytest.fixture
def copier(conn: redis.Redis, tokens: Tokens) -> Browser:
    """Who may do everything, and may have the tests' functions run with other arguments."""
    access = Sessions(conn, TokenFile(str(tokens.path)))
    return Browser(DashboardApp(conn, access, tasks=["tests.jobs.basic"])).log_in(tokens.by_scope["admin"])


def _ended(conn: redis.Redis, **options: object) -> None:
    Queue("sms", conn).enqueue(ECHO, job_id="old", **options)
    Job.fetch("old", conn).cancel()


def test_an_edited_copy_takes_masked_values_of_the_original(copier: Browser, conn: redis.Redis) -> None:
    _ended(conn, args=[{"to": "+4915112345678", "text": "hi", "password": "hunter2"}])
    form = copier.get("/jobs/old/copy")
    args = json.loads(_area(form.html, "args"))
    assert "4915112345678" not in form.html and "hunter2" not in form.html and "hx-get" not in form.html
    args[0]["text"] = "bye"
    page = copier.press(form, "Enqueue the copy", args=json.dumps(args), kwargs="{}", queue="mail", priority="high")
    assert "This is the copy" in page.text and "mail" in page.text
    (copy,) = Queue("mail", conn).get_jobs()
    assert list(copy.args) == [{"to": "+4915112345678", "text": "bye", "password": "hunter2"}]


def test_a_form_that_was_sent_twice_makes_one_copy(copier: Browser, conn: redis.Redis) -> None:
    _ended(conn, args=["x"])
    form = copier.get("/jobs/old/copy")
    for _ in range(2):
        copier.press(form, "Enqueue the copy", args='["y"]')
    assert len(Queue("sms", conn).get_job_ids()) == 1


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"args": "[1,"}, "args is not JSON"),
        ({"kwargs": "[1]"}, "kwargs: use an object"),
        ({"priority": "999"}, "priority"),
        ({"queue": "a b"}, "queue"),
    ],
)
def test_a_refused_copy_shows_the_error_beside_the_entered_values(
    copier: Browser, conn: redis.Redis, fields: dict[str, str], told: str
) -> None:
    _ended(conn, args=["x"])
    sent = {"args": '["kept"]', "kwargs": "{}", "queue": "sms", "priority": "1", **fields}
    page = copier.post("/jobs/old/copy", **sent)
    assert page.status == 422 and told in page.text
    assert _area(page.html, "args") == sent["args"] and _area(page.html, "kwargs") == sent["kwargs"]
    assert not Queue("sms", conn).get_job_ids()


def test_a_copy_of_what_is_no_task_of_this_server_is_refused(client: Browser, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue("os.system", "true", job_id="old")
    Job.fetch("old", conn).cancel()
    page = client.post("/jobs/old/copy", args='["false"]')
    assert page.status == 422 and "os.system is not among the tasks" in page.text
