"""Masked values in a browser: asked first, shown as the answer to the form, gone when the page is left."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import redis

from fusion import Queue
from tests.browser.house import House
from tests.browser.test_kept import both, press
from tests.browser.test_pages import AXE, WIDER
from tests.dashboard.browser import audited
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

CANARY, TASK = "Rosalind Franklin", "tests.jobs.basic.noop"
QUESTION = "Show the masked values of job a of queue sms? The audit gets an entry with your name."


def content_of(page: Page) -> str:
    """What the page holds; empty while the browser is on its way."""
    from playwright.sync_api import Error

    try:
        return page.content()
    except Error:
        return ""


@both
def test_they_are_shown_once_asked_for_and_go_when_the_page_is_left(
    dashboard: House, conn: redis.Redis, javascript: bool
) -> None:
    from playwright.sync_api import Error

    Queue("sms", conn).enqueue(TASK, kwargs={"to": CANARY, "long": "x" * 3000}, job_id="a")
    page = dashboard.visit("/jobs/a", javascript=javascript)
    assert CANARY not in page.content()
    assert "an entry that you saw these values" in press(page, "Show masked values", QUESTION, javascript)
    assert CANARY in page.inner_text("[data-revealed]") and CANARY not in page.url
    if javascript:
        page.evaluate("document.querySelector('#main').dispatchEvent(new Event('tick'))")
        page.keyboard.press("r")
        assert CANARY in page.inner_text("main"), "nothing reads it again while it is looked at"
        page.evaluate(AXE.read_text() + ";0")
        assert page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"] == []
        page.set_viewport_size({"width": 390, "height": 900})
        assert page.evaluate(WIDER) == []
        page.evaluate("window.dispatchEvent(new PageTransitionEvent('pagehide', {persisted: true}))")
        assert CANARY not in page.content(), "a page that the browser keeps for the way back has them no more"
    page.locator("main").get_by_role("link").first.click()
    page.wait_for_url("**/jobs/a")
    assert CANARY not in page.content()
    with suppress(Error):  # in place of the page comes the browser's own, which asks whether to send the form again
        page.go_back()
    assert CANARY not in eventually(lambda: content_of(page))
    assert audited(conn, "reveal") == ["token:admin"]
    dashboard.person.troubles.clear()


def test_a_token_for_another_scope_has_no_button(dashboard: House, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(TASK, kwargs={"to": CANARY}, job_id="a")
    page = dashboard.visit("/jobs/a", "operator")
    assert "Show masked values" not in page.inner_text("main")
