"""Every action is pressed in the browser: asked first, left alone at a no, done at a yes, told on the page that comes next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest
import redis
from _pytest.mark.structures import ParameterSet

from fusion import Queue
from tests.browser.actions import ROWS, Row, args_of, filled, status, wanted
from tests.browser.house import House
from tests.kit.waiting import eventually
from tests.kit.workers import Workers
from tests.operations.hands import failed

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.browser

FOCUSED = "document.activeElement.textContent.trim()"


def rows() -> Iterator[ParameterSet]:
    """All rows. The first of each class (`/queues`, `/jobs`, ...) is in the gate."""
    classes = set[str]()
    for row in ROWS:
        kind = row.action.split("/")[1]
        yield pytest.param(row, id=str(row), marks=[] if kind in classes else [pytest.mark.gate])
        classes.add(kind)


def button(page: Page, row: Row) -> Locator:
    around = page.locator("main tr, main section").filter(has_text=row.within).last if row.within else page.locator("main")
    return around.get_by_role("button", name=row.press, exact=True)


def confirm(page: Page, pressed: Locator, asks: str) -> None:
    """Press it, leave it at the question, press it again and say yes."""
    dialog = page.get_by_role("dialog")
    for answer in ("Leave it", "Yes"):
        pressed.click()
        assert asks in dialog.inner_text()
        if answer == "Yes":
            with page.expect_navigation():
                dialog.get_by_role("button", name=answer).click()
        else:
            dialog.get_by_role("button", name=answer).click()
            assert not dialog.is_visible() and page.evaluate(FOCUSED) == pressed.inner_text(), "back where one was"


@pytest.mark.parametrize("row", list(rows()))
def test_each_action_is_confirmed_performed_and_reported(dashboard: House, conn: redis.Redis, row: Row) -> None:
    row.stage(conn)
    page = (
        dashboard.visit(row.page) if not row.logged else dashboard.visit(row.page, status=404 if "restore" in row.action else 200)
    )
    row.first(page)
    assert not row.done(conn)
    if row.asks:
        confirm(page, button(page, row), row.asks)
    else:
        with page.expect_navigation():
            button(page, row).click()
    assert row.done(conn)
    said = page.locator("[role=status]")
    assert row.says in said.inner_text() and "wrong" not in (said.get_attribute("class") or "")
    page.wait_for_selector("[role=status]:focus")  # so it is read out, and Tab goes on from there
    at = unquote(page.url.removeprefix(dashboard.person.url))
    assert at.startswith(row.goes) if row.goes else at == row.page, "where one was"
    if row.logged:
        dashboard.person.met(row.logged)


@pytest.mark.parametrize("javascript", [True, False])
def test_enter_in_the_reason_means_the_button_beside_it(dashboard: House, conn: redis.Redis, javascript: bool) -> None:
    failed(conn, 2)
    page = dashboard.visit("/jobs?q=state:failed", javascript=javascript)
    filled("f0", Reason="customer 7")(page)
    page.keyboard.press("Enter")
    if javascript:
        dialog = page.get_by_role("dialog")
        assert "Quarantine the selected jobs (1 of state:failed)?" in dialog.inner_text()
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
    page.wait_for_url("**/operations/*")
    assert wanted(conn)["action"] == "quarantine" and args_of(conn) == {"reason": "customer 7"}


def test_nothing_is_asked_while_nothing_is_ticked(dashboard: House, conn: redis.Redis) -> None:
    failed(conn, 1)
    page = dashboard.visit("/jobs?q=state:failed")
    with page.expect_navigation():
        page.get_by_role("button", name="Delete", exact=True).click()
    assert page.inner_text(".said.wrong") == "Select the jobs to delete first." and conn.exists("rq:job:f0")


def test_a_key_named_like_a_placeholder_gets_its_confirmation(dashboard: House, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue("tests.jobs.basic.noop", concurrency_key="{n}", max_concurrent=1)
    page = dashboard.visit("/limits")
    page.locator("main").get_by_role("button", name="Pause", exact=True).click()
    assert "Pause key {n}?" in page.get_by_role("dialog").inner_text()


def test_enter_opens_the_row_to_which_j_went(dashboard: House, conn: redis.Redis) -> None:
    failed(conn, 1)
    page = dashboard.visit("/jobs?q=state:failed")
    page.keyboard.press("j")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert page.url.endswith("/jobs/f0")


def test_a_worker_obeys_the_buttons_of_its_page(dashboard: House, conn: redis.Redis, workers: Workers) -> None:
    worker = workers.start("sms")
    (name,) = [key.decode().removeprefix("rq:worker:") for key in conn.smembers("rq:workers")]
    page = dashboard.visit("/workers")
    main = page.locator("main")
    confirm(page, main.get_by_role("button", name="Quiet", exact=True), f"Quiet worker {name}? It takes no more jobs.")
    assert f"Worker {name} was ordered to take no more jobs" in page.inner_text("[role=status]")
    Queue("sms", conn).enqueue("tests.jobs.basic.noop", job_id="a")
    with page.expect_navigation():
        main.get_by_role("button", name="Unquiet", exact=True).click()  # there by itself, once the worker says so
    assert f"Worker {name} was ordered to take jobs again" in page.inner_text("[role=status]")
    eventually(lambda: status(conn, "a") == "finished")
    main.get_by_role("link", name=name).click()
    confirm(
        page, main.get_by_role("button", name="Stop", exact=True), f"Stop worker {name}? It runs nothing now, and ends at once."
    )
    assert f"Worker {name} was ordered to end" in page.inner_text("[role=status]")
    assert page.url.endswith("/workers"), "its own page may be gone by then"
    assert worker.wait() == 0
