"""Every action is pressed in the browser: asked first, left alone at a no, done at a yes, told on the page that comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest
import redis

from fusion import Queue
from tests.browser.actions import ROWS, Row, status
from tests.browser.house import House
from tests.kit.waiting import eventually
from tests.kit.workers import Workers

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.browser

FOCUSED = "document.activeElement.textContent.trim()"


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


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_it_is_asked_done_and_told(dashboard: House, conn: redis.Redis, row: Row) -> None:
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
    at = unquote(page.url.removeprefix(dashboard.person.url))
    assert at.startswith(row.goes) if row.goes else at == row.page, "where one was"
    if row.logged:
        dashboard.person.met(row.logged)


def test_a_worker_does_as_it_is_told(dashboard: House, conn: redis.Redis, workers: Workers) -> None:
    worker = workers.start("sms")
    (name,) = [key.decode().removeprefix("rq:worker:") for key in conn.smembers("rq:workers")]
    page = dashboard.visit("/workers")
    main = page.locator("main")
    confirm(page, main.get_by_role("button", name="Quiet", exact=True), f"Quiet worker {name}? It takes no more jobs")
    assert f"Worker {name} is told to take no more jobs" in page.inner_text("[role=status]")
    Queue("sms", conn).enqueue("tests.jobs.basic.noop", job_id="a")
    with page.expect_navigation():
        main.get_by_role("button", name="Unquiet", exact=True).click()  # there by itself, once the worker says so
    assert f"Worker {name} is told to take jobs again" in page.inner_text("[role=status]")
    eventually(lambda: status(conn, "a") == "finished")
    main.get_by_role("link", name=name).click()
    confirm(page, main.get_by_role("button", name="Stop", exact=True), f"Stop worker {name}? It ends when the 0 jobs")
    assert f"Worker {name} is told to end" in page.inner_text("[role=status]")
    assert worker.wait() == 0
