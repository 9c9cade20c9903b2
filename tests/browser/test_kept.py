"""What is done from the pages of what waits, recurs, is bounded and was deleted: asked first, by keys, without scripts, on a phone."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
import redis

from fusion import Queue
from fusion.cron.scheduler import Scheduler
from fusion.job import Job
from fusion.store.write.broker import Broker
from tests.browser.house import House
from tests.jobs import basic
from tests.kit.hands import Hand
from tests.store.batch_hands import add, begin

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

TASK = "tests.jobs.basic.noop"
both = pytest.mark.parametrize("javascript", [True, False])


def press(page: Page, name: str, question: str, javascript: bool = True, *, enter: bool = False) -> str:
    """That button; the question is answered with yes where it is asked. What the next page tells of it. `enter`: by the key, where the focus is."""
    button = page.locator("main").get_by_role("button", name=name, exact=True)

    def go() -> None:
        page.keyboard.press("Enter") if enter else button.click()

    if javascript:
        go()
        dialog = page.get_by_role("dialog")
        assert question in dialog.inner_text()
        with page.expect_navigation():
            dialog.get_by_role("button", name="Yes").click()
    else:
        with page.expect_navigation():
            go()
    return page.inner_text("[role=status]")


@both
def test_a_scheduled_job_is_moved_run_and_canceled(dashboard: House, conn: redis.Redis, javascript: bool) -> None:
    for n in range(3):
        Queue("sms", conn).enqueue(basic.noop, job_id=f"j{n}", enqueue_in=600 + n)
    page = dashboard.visit("/scheduled", javascript=javascript, width=390)
    page.get_by_label("Select j0").check()
    page.get_by_label("To", exact=True).fill("3h")
    assert "j0 is moved to 3h" in press(page, "Move selected", "Move 1 of these jobs", javascript, enter=True)
    assert Job.fetch("j0", conn).scheduled_at() > Job.fetch("j2", conn).scheduled_at() + timedelta(hours=2)
    assert [link.split()[-1] for link in page.locator("tr[data-row] a").all_inner_texts()] == ["j1", "j2", "j0"]
    page.get_by_label("Select j1").check()
    assert "j1 is due now" in press(page, "Run selected now", "Run 1 of these", javascript)
    for name in ("j0", "j2"):
        page.get_by_label(f"Select {name}").check()
    assert "2 of 2 jobs are canceled" in press(page, "Cancel selected", "Cancel 2 of these", javascript)
    assert [str(Job.fetch(f"j{n}", conn).get_status()) for n in (0, 2)] == ["canceled", "canceled"]


@both
def test_a_cron_entry_is_run_paused_and_resumed(dashboard: House, conn: redis.Redis, javascript: bool) -> None:
    Scheduler(conn).cron("0 9 * * 1-5", TASK, id="report", queue="sms", timezone="Europe/Berlin")
    page = dashboard.visit("/cron", javascript=javascript, width=390)
    assert "Monday to Friday at 09:00" in page.inner_text("main")
    page.get_by_role("link", name="report").click()
    assert "is enqueued" in press(page, "Run now", "Enqueue a job of report now?", javascript)
    (job,) = Queue("sms", conn).get_job_ids()
    assert "by hand" in page.inner_text("main") and page.get_by_role("link", name=job).count() == 2
    assert "report is paused" in press(page, "Pause", "Pause report?", javascript)
    assert Scheduler(conn).get("report").paused
    with page.expect_navigation():
        page.get_by_role("button", name="Resume").click()
    assert "report is resumed" in page.inner_text("[role=status]") and not Scheduler(conn).get("report").paused


@both
def test_deleted_jobs_are_restored_and_the_rest_is_forgotten(dashboard: House, conn: redis.Redis, javascript: bool) -> None:
    for n in range(4):
        Queue("sms", conn).enqueue(basic.noop, job_id=f"j{n}")
        Job(f"j{n}", {}, conn).delete()
    page = dashboard.visit("/trash", javascript=javascript, width=390)
    with page.expect_navigation():
        page.get_by_role("button", name="Restore", exact=True).first.click()
    assert "j3 is restored" in page.inner_text("[role=status]")
    page.get_by_label("Select j0").check()
    assert "j0 is restored" in press(page, "Restore selected", "Restore 1 of these", javascript)
    page.locator("summary").click()
    told = press(page, "Empty the trash", "Forget 2 jobs for good?", javascript)
    assert "2 jobs cannot be restored" in told and "The trash is empty" in page.inner_text("main")
    assert Queue("sms", conn).get_job_ids() == ["j0", "j3"], "each at its old place"


@both
def test_a_key_is_bounded_and_its_slot_released_and_a_batch_is_canceled(
    dashboard: House, conn: redis.Redis, javascript: bool
) -> None:
    key = "https://api.example.com/v1:u%42,*"
    for n in range(2):
        Queue("sms", conn).enqueue(basic.noop, job_id=f"j{n}", concurrency_key=key, max_concurrent=1)
    Hand(Broker(conn), "sms").take()
    page = dashboard.visit("/limits", javascript=javascript, width=390)
    page.get_by_role("link", name=key).click()
    assert "1 of 1" in page.inner_text("main")
    page.get_by_label("At once").fill("5")
    assert "5 at once" in press(page, "Set", "Change the limit of", javascript)
    assert "no slot of" in press(page, "Release", "Take the slot of job j0?", javascript)
    begin(Broker(conn), "mails")
    add(Broker(conn), "mails", "a", "b", queue="sms")
    page.goto("/batches/mails")
    assert "0 of 2" in page.inner_text("main")
    assert "Batch mails is canceled with 2" in press(page, "Cancel", "the 2 jobs in it that did not end?", javascript)


def test_a_reader_is_offered_no_actions(staged: House) -> None:
    page = staged.visit("/scheduled", "reader", javascript=False)
    for path in (
        "/scheduled",
        "/cron",
        "/cron/ours-entry",
        "/batches",
        "/batches/batch",
        "/limits",
        "/limits/k",
        "/audit",
        "/trash",
    ):
        page.goto(path)
        assert page.locator("main form[method=post], main input[type=checkbox], main a[href*='/operations/new']").count() == 0, (
            path
        )
