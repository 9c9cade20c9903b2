"""What stands around every page: the way in and out, dark and light, keys, ticks, questions before something is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import redis

from fusion import Queue
from tests.browser.house import House
from tests.jobs import basic
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

COLOURS = """() => { const style = getComputedStyle(document.body); return [style.backgroundColor, style.color] }"""


def brightness(colour: str) -> float:
    red, green, blue = (float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3])
    return 0.3 * red + 0.6 * green + 0.1 * blue


def scheme_of(page: Page) -> str:
    back, front = page.evaluate(COLOURS)
    assert abs(brightness(back) - brightness(front)) > 100, (back, front)
    return "light" if brightness(back) > brightness(front) else "dark"


@pytest.mark.parametrize("javascript", [True, False])
def test_a_token_is_given_once_and_logging_out_ends_it(dashboard: House, javascript: bool) -> None:
    page = dashboard.person.open("/queues", javascript=javascript)
    assert page.url.endswith("/login")
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    assert "not known" in page.inner_text("[role=alert]")
    dashboard.person.met("status of 401")
    page.get_by_label("Token").fill(dashboard.tokens["reader"])
    page.keyboard.press("Enter")
    page.wait_for_selector("nav")
    (cookie,) = [one for one in page.context.cookies() if one["name"] == "fusion_session"]
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert "reader" in page.inner_text("header")
    page.get_by_role("button", name="Log out").click()
    page.goto("/queues")
    assert page.url.endswith("/login")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_and_the_switch(dashboard: House, scheme: Any) -> None:
    page = dashboard.visit("/", scheme=scheme)
    other: Any = {"light": "dark", "dark": "light"}[scheme]
    assert scheme_of(page) == scheme
    page.emulate_media(color_scheme=other)
    assert scheme_of(page) == other
    seen = []
    for _ in range(3):
        page.keyboard.press("t")
        seen.append(scheme_of(page))
        page.goto("/queues")
        assert scheme_of(page) == seen[-1], "kept from page to page"
    assert seen == ["dark", "light", other]


def test_a_session_that_is_over_leads_to_the_way_in_by_itself(dashboard: House, conn: redis.Redis) -> None:
    page = dashboard.visit("/queues")
    conn.flushall()
    page.keyboard.press("r")
    page.wait_for_url("**/login")


def shows_after_r(page: Page, text: str) -> None:
    """Pressed until the page has it: answers of the API are shown again for a second."""
    eventually(lambda: page.keyboard.press("r") or page.locator(f"main >> text={text}").count(), interval=0.3)


def ticks(page: Page) -> Callable[[], int]:
    """How often the page has asked for itself."""
    seen: list[str] = []
    page.on("request", lambda request: seen.append(request.url) if request.headers.get("hx-request") == "true" else None)
    return lambda: len(seen)


def test_pages_refresh_themselves_but_not_while_paused_or_hidden(dashboard: House, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(basic.noop)
    page = dashboard.visit("/queues", before=lambda context: context.clock.install())
    count = ticks(page)
    Queue("email", conn).enqueue(basic.noop)
    page.clock.run_for(3000)
    page.wait_for_selector("main >> text=email")
    page.get_by_role("button", name="Pause", exact=True).first.click()  # the header's
    assert page.locator("#pause").get_attribute("aria-pressed") == "true"
    before = count()
    Queue("calls", conn).enqueue(basic.noop)
    page.clock.run_for(20_000)
    assert count() == before
    shows_after_r(page, "calls")
    page.keyboard.press("p")
    page.clock.run_for(3000)
    eventually(lambda: page.evaluate("1") and count() > before + 1)
    page.evaluate("Object.defineProperty(document, 'hidden', {get: () => true})")
    before = count()
    page.clock.run_for(20_000)
    assert count() == before


def test_a_refresh_keeps_the_focus_and_what_is_ticked(dashboard: House, conn: redis.Redis) -> None:
    for name in ("a", "b", "c"):
        Queue(name, conn).enqueue(basic.noop)
    page = dashboard.visit("/queues")
    page.keyboard.press("j")
    page.keyboard.press("j")
    focused = page.evaluate("document.activeElement.textContent")
    assert focused.strip() == "b"
    Queue("d", conn).enqueue(basic.noop)
    shows_after_r(page, "/^d$/")
    assert page.evaluate("document.activeElement.textContent") == focused


def test_keys_open_help_move_and_search(dashboard: House, conn: redis.Redis) -> None:
    for name in ("a", "b"):
        Queue(name, conn).enqueue(basic.noop)
    page = dashboard.visit("/queues")
    page.keyboard.press("?")
    assert page.get_by_role("dialog").is_visible()
    assert "search" in page.get_by_role("dialog").inner_text()
    page.keyboard.press("Escape")
    assert not page.get_by_role("dialog").is_visible()
    seen = []
    for key in ("j", "j", "j", "k"):
        page.keyboard.press(key)
        seen.append(page.evaluate("document.activeElement.textContent").strip())
    assert seen == ["a", "b", "b", "a"]


def test_a_question_is_asked_first_and_answered_by_the_keyboard(dashboard: House, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(basic.noop)
    page = dashboard.visit("/queues")
    button = page.locator("main").get_by_role("button", name="Pause")
    button.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    assert "sms" in dialog.inner_text()
    page.keyboard.press("Enter")  # what has the focus there does nothing
    assert not dialog.is_visible() and not conn.exists("rq:paused:sms")
    button.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("[role=status]")
    assert "sms is paused" in page.inner_text("[role=status]")
    eventually(lambda: conn.exists("rq:paused:sms"))


def test_without_javascript_a_button_does_it_at_once(dashboard: House, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(basic.noop)
    page = dashboard.visit("/queues", javascript=False)
    page.get_by_role("button", name="Pause").click()
    assert "sms is paused" in page.inner_text("[role=status]")
    assert page.url.endswith("/queues") and conn.exists("rq:paused:sms")


def test_a_reader_sees_no_buttons(dashboard: House, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(basic.noop)
    page = dashboard.visit("/queues", "reader")
    assert page.locator("main button").count() == 0


def test_an_unknown_page_is_a_404_with_links(dashboard: House) -> None:
    page = dashboard.visit("/nothing", status=404)
    dashboard.person.met("status of 404")
    assert page.get_by_role("link").count() > 0
