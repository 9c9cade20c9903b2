"""What is done to jobs from their pages: to those that are ticked, to all that a query matches, to a whole group; by mouse, by keys, without
scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis

from fusion.job import Job
from tests.browser.house import House
from tests.kit.waiting import eventually
from tests.operations.hands import carry_on, failed

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser


def states(conn: redis.Redis, *ids: str) -> list[str]:
    return [str(Job.fetch(job_id, conn).get_status()) for job_id in ids]


def say_yes(page: Page, question: str) -> None:
    """To the question that stands there, and goes on to the next page."""
    dialog = page.get_by_role("dialog")
    assert question in dialog.inner_text()
    with page.expect_navigation():
        dialog.get_by_role("button", name="Yes").click()


def reach(page: Page, name: str) -> None:
    """By Tab alone."""
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent").strip() == name:
            return
    raise AssertionError(f"Tab does not come to {name!r}")


def to_its_end(page: Page, conn: redis.Redis) -> str:
    """Carry the operation on whose page this is; what the page says of it, by itself, once it is done."""
    text = page.inner_text("main")
    assert "running" in text and "0 of " in text
    (operation,) = conn.zrange("rq:operations", 0, -1)
    assert carry_on(conn, operation.decode()) == "done"
    page.wait_for_selector("main .light >> text=done")
    return page.inner_text("main")


def test_ticked_jobs_stay_ticked_and_are_requeued(dashboard: House, conn: redis.Redis) -> None:
    failed(conn, 3)
    page = dashboard.visit("/jobs?q=state:failed")
    page.get_by_label("Select all").check()
    page.get_by_label("Select f1", exact=True).uncheck()
    failed(conn, 1, prefix="later")
    eventually(lambda: page.keyboard.press("r") or page.locator("main >> text=later0").count(), interval=0.3)
    assert page.locator("input[name=id]:checked").evaluate_all("all => all.map(one => one.value)") == ["f2", "f0"]
    page.get_by_role("button", name="Requeue").click()
    say_yes(page, "Requeue the selected jobs (2 of state:failed)?")
    assert "2 jobs requeued" in page.inner_text("[role=status]")
    assert states(conn, "f0", "f1", "f2", "later0") == ["queued", "failed", "queued", "failed"]


def test_all_that_match_are_requeued_and_the_page_shows_how_far_it_is(dashboard: House, conn: redis.Redis) -> None:
    failed(conn, 120)
    page = dashboard.visit("/jobs?q=state:failed")
    page.get_by_role("link", name="Requeue…").click()
    assert page.inner_text("main h1") == "Requeue 120 failed jobs of queue q"
    page.get_by_role("button", name="Requeue 120").click()
    say_yes(page, "Requeue 120 failed jobs of queue q?")
    told = to_its_end(page, conn)
    assert "120 requeued" in told and "120 of 120" in told
    assert states(conn, "f0", "f119") == ["queued", "queued"]


def test_the_same_by_keys_alone(dashboard: House, conn: redis.Redis) -> None:
    failed(conn, 2)
    page = dashboard.visit("/jobs")
    page.keyboard.press("/")
    page.keyboard.type("state:failed")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    page.keyboard.press("j")
    page.keyboard.press("x")
    assert page.locator("input[name=id]:checked").count() == 1
    page.locator("h1").click()  # to the top
    reach(page, "Requeue…")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    reach(page, "Requeue 2 failed jobs of queue q")
    page.keyboard.press("Enter")
    assert "Requeue 2 failed jobs of queue q?" in page.get_by_role("dialog").inner_text()
    with page.expect_navigation():
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
    assert "2 requeued" in to_its_end(page, conn)


def test_the_same_without_scripts(dashboard: House, conn: redis.Redis) -> None:
    failed(conn, 3)
    page = dashboard.visit("/jobs?q=state:failed", javascript=False)
    page.get_by_label("Select f1", exact=True).check()
    page.get_by_role("button", name="Requeue").click()
    assert "1 job requeued" in page.inner_text("[role=status]")
    page.get_by_role("link", name="Requeue…").click()
    page.get_by_role("button", name="Requeue 2 failed jobs of queue q").click()
    (operation,) = conn.zrange("rq:operations", 0, -1)
    assert page.url.endswith(f"/operations/{operation.decode()}") and "0 of 2" in page.inner_text("main")
    assert carry_on(conn, operation.decode()) == "done"
    eventually(lambda: page.reload() and "2 requeued" in page.inner_text("main"), interval=0.3)


def test_a_group_is_set_aside_as_a_whole_and_the_reason_is_asked_for(dashboard: House, conn: redis.Redis) -> None:
    failed(conn, 2)
    page = dashboard.visit("/failures")
    page.locator("main tbody a").first.click()
    assert "2 failed now" in page.inner_text("main")
    page.get_by_role("link", name="Quarantine…").click()
    button = page.get_by_role("button", name="Quarantine 2")
    button.click()
    assert not page.get_by_role("dialog").is_visible() and page.url.split("?")[0].endswith("/operations/new")
    page.get_by_label("Reason").fill("customer 7 left")
    button.click()
    say_yes(page, "Quarantine 2 failed jobs of queue q?")
    assert "customer 7 left" in to_its_end(page, conn)
    assert conn.hget("rq:job:f0", "quarantined")


def test_a_reader_is_offered_no_actions(dashboard: House, conn: redis.Redis) -> None:
    failed(conn, 1)
    page = dashboard.visit("/failures", "reader")
    page.locator("main tbody a").first.click()
    offered = page.locator("main form[method=post], main a[href*='/operations/new'], main input[type=checkbox]")
    assert offered.count() == 0
    page.get_by_role("link", name="All of them").click()
    assert "f0" in page.inner_text("main") and offered.count() == 0
