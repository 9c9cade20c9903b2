"""Operations on everything that a query matches: what one would come to, beginning it, its progress, canceling it."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import pytest
import redis

from fusion import Queue
from fusion.dashboard.app import DashboardApp
from fusion.job import Job
from tests.dashboard.browser import Browser
from tests.operations.hands import carry_on
from tests.web.conftest import Fail
from tests.web.conftest import fail as fail

NOOP = "tests.jobs.basic.noop"


def _begun(conn: redis.Redis) -> list[str]:
    return [one.decode() for one in conn.zrange("rq:operations", 0, -1)]


def _new(action: str, query: str) -> str:
    return f"/operations/new?action={action}&q={quote(query)}"


def test_before_it_begins_it_says_how_many_and_of_what(client: Browser, conn: redis.Redis, fail: Fail) -> None:
    fail("one")
    fail("two")
    Queue("mail", conn).enqueue(NOOP, job_id="waits")
    page = client.get(_new("requeue", "state:failed"))
    assert "Requeue 2 failed jobs of queue sms" in page.text and "one" in page.text and "hx-get" not in page.html
    assert "Delete 3 jobs of 2 queues" in client.get(_new("delete", "queue:sms,mail")).text
    assert "Reprioritise 1 queued job of queue mail" in client.get(_new("reprioritise", "queue:mail")).text
    assert "No job matches" in client.get(_new("requeue", "queue:nothing")).text
    assert not _begun(conn), "a look begins nothing"


@pytest.mark.parametrize(
    ("query", "told"),
    [("sttate:failed", "did you mean 'state'"), ("", "needs a query"), ("state:queued", "does nothing to jobs")],
)
def test_an_operation_that_cannot_begin_names_the_fix(client: Browser, conn: redis.Redis, query: str, told: str) -> None:
    assert told in client.get(_new("requeue", query)).text
    assert told in client.post("/operations", action="requeue", q=query, back="/operations").text
    assert not _begun(conn)


def test_it_is_begun_once_and_its_progress_is_shown(client: Browser, conn: redis.Redis, fail: Fail) -> None:
    fail("one")
    fail("two")
    would, label = client.get(_new("requeue", "state:failed")), "Requeue 2 failed jobs of queue sms"
    page = client.press(would, label)
    again = client.press(would, label)
    (operation,) = _begun(conn)
    assert "Requeueing 2 jobs" in page.text and f"/operations/{operation}/cancel" in page.html and operation in again.html
    assert "Nobody carries it on" in page.text and "token:adminer" in page.text
    carry_on(conn, operation)
    client.app._calls._kept.clear()  # what was read a moment ago is shown again for a second
    done = client.get(f"/operations/{operation}")
    assert (
        "done" in done.text
        and "2 requeued" in done.text
        and "Nobody carries it on" not in done.text
        and ">Cancel<" not in done.html
    )
    assert "Requeue 2 jobs" in client.get("/operations").text
    assert Job.fetch("one", conn).get_status() == "queued"


def test_a_page_asks_for_the_reason_that_an_action_needs(client: Browser, conn: redis.Redis, fail: Fail) -> None:
    fail("one")
    would = client.get(_new("quarantine", "state:failed"))
    refused = client.press(would, "Quarantine 1 failed job of queue sms", reason=" ")
    assert "quarantine needs one" in refused.text and not _begun(conn)
    page = client.press(would, "Quarantine 1 failed job of queue sms", reason="customer 7 left")
    assert "customer 7 left" in page.text
    Queue("mail", conn).enqueue(NOOP, job_id="waits")
    client.press(client.get(_new("reprioritise", "queue:mail")), "Reprioritise 1 queued job of queue mail", priority="high")
    for operation in _begun(conn):
        carry_on(conn, operation)
    assert conn.hget("rq:job:one", "quarantined") and conn.hget("rq:job:waits", "priority") == b"2"


def test_deleted_jobs_are_in_the_trash_unless_purged(client: Browser, conn: redis.Redis, fail: Fail) -> None:
    for job_id, purge in (("one", {}), ("two", {"purge": "1"})):
        fail(job_id)
        page = client.press(client.get(_new("delete", f"id:{job_id}")), "Delete 1 failed job of queue sms", **purge)
        operation = page.html.split("/operations/", 1)[1]
        carry_on(conn, next(one for one in _begun(conn) if operation.startswith(one) or one in page.html))
    assert conn.exists("rq:trash:job:one") and not conn.exists("rq:trash:job:two", "rq:job:one", "rq:job:two")


def test_a_running_operation_is_canceled(client: Browser, conn: redis.Redis, fail: Fail) -> None:
    fail("one")
    page = client.press(client.get(_new("requeue", "state:failed")), "Requeue 1 failed job of queue sms")
    assert "It is canceled" in client.press(page, "Cancel").text
    assert Job.fetch("one", conn).get_status() == "failed"
    assert "canceled by token:adminer" in client.get(f"/operations/{_begun(conn)[0]}").text


def test_selected_jobs_are_set_aside_by_an_operation_on_just_these(client: Browser, conn: redis.Redis, fail: Fail) -> None:
    for job_id in ("one", "two", "three"):
        fail(job_id)
    page = client.post("/jobs", do="quarantine", id=["one", "two"], reason="broken data", back="/jobs")
    assert "Setting aside 2 selected jobs" in page.text and "broken data" in page.text
    carry_on(conn, _begun(conn)[0])
    assert [bool(conn.hget(f"rq:job:{job_id}", "quarantined")) for job_id in ("one", "two", "three")] == [True, True, False]


def test_an_operation_without_the_scope_is_refused(
    app: DashboardApp, client: Browser, reader: Browser, restricted: Callable[..., Browser], conn: redis.Redis, fail: Fail
) -> None:
    fail("one")
    assert reader.get(_new("requeue", "state:failed")).status == 403
    assert reader.send("/operations", action="requeue", q="state:failed").status == 403
    operator = restricted("sms", scope="operate")
    assert operator.get(_new("delete", "state:failed")).status == 403
    assert operator.send("/operations", action="delete", q="state:failed").status == 403
    app._read_only = True
    assert client.get(_new("requeue", "state:failed")).status == 403
    assert not _begun(conn)


def test_operations_are_of_the_queues_that_a_person_may_see(
    client: Browser, restricted: Callable[..., Browser], conn: redis.Redis, fail: Fail
) -> None:
    fail("one")
    Queue("secret", conn).enqueue(NOOP, job_id="theirs")
    client.post("/operations", action="cancel", q="queue:secret")
    (operation,) = _begun(conn)
    browser = restricted("sms")
    assert browser.get(f"/operations/{operation}").status == 404 and "secret" not in browser.get("/operations").text
    browser.send(f"/operations/{operation}/cancel")
    assert conn.hget(f"rq:operation:{operation}", "status") == b"running"
    assert "No job matches" in browser.get(_new("cancel", "queue:secret")).text
    assert "None was begun" in browser.get("/operations").text
