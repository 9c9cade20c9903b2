"""Ways about the pages: the palette, a message that takes back what was done, the numbers under the pointer, tiles."""

from __future__ import annotations

import pytest
import redis

from fusion import Queue
from fusion.job import Job
from fusion.store.read.inspector import Inspector
from fusion.store.write.broker import Broker
from tests.browser.house import House
from tests.jobs import basic
from tests.kit.hands import Hand
from tests.kit.waiting import eventually

pytestmark = pytest.mark.browser

#: Lines of text in each tile, without its number.
LINES = """() => [...document.querySelectorAll(".tile")].map(tile => {
    const range = document.createRange(), text = [...tile.childNodes].filter(one => one.nodeType === 3 && one.data.trim())
    range.setStartBefore(text[0]); range.setEndAfter(text[text.length - 1])
    return new Set([...range.getClientRects()].map(box => Math.round(box.top))).size
})"""


@pytest.mark.gate
def test_the_palette_goes_to_a_job_a_queue_and_a_page_and_presses_a_button(dashboard: House, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(basic.noop, job_id="otp-4711")
    page = dashboard.visit("/queues")
    palette = page.get_by_role("dialog", name="Go to, or do")
    for text, to in (("otp-4711", "/jobs/otp-4711"), ("sms", "/queues/sms"), ("Trash", "/trash")):
        page.keyboard.press("Control+k")
        assert palette.is_visible()
        page.keyboard.type(text)
        palette.locator(f"li.at a[href$='{to}']").wait_for()
        page.keyboard.press("Enter")
        page.wait_for_url(f"**{to}")
    page.goto("/queues")
    page.keyboard.press("Control+k")
    page.keyboard.type("pause")
    palette.get_by_role("button", name="Pause sms").wait_for()
    while "Pause" not in palette.locator("li.at").inner_text():
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Yes").click()
    eventually(lambda: conn.exists("rq:paused:sms"))


def test_the_palette_stays_shut_while_a_field_has_the_focus(dashboard: House) -> None:
    page = dashboard.visit("/queues")
    page.keyboard.press("/")
    page.keyboard.press("Control+k")
    assert not page.get_by_role("dialog").is_visible()


@pytest.mark.gate
@pytest.mark.parametrize("javascript", [True, False])
def test_a_message_takes_back_what_was_done(dashboard: House, conn: redis.Redis, javascript: bool) -> None:
    Queue("sms", conn).enqueue(basic.noop, job_id="a")
    page = dashboard.visit("/jobs/a", javascript=javascript)

    def press(label: str) -> None:
        page.locator("main").get_by_role("button", name=label, exact=True).click()
        if javascript:
            page.get_by_role("dialog").get_by_role("button", name="Yes").click()

    press("Cancel")
    page.wait_for_selector("main >> text=canceled")
    press("Delete")
    page.get_by_role("button", name="Undo").wait_for()
    dashboard.person.met("status of 404")  # the page says that the job is in the trash
    assert not conn.exists("rq:job:a")
    page.get_by_role("button", name="Undo").click()
    page.wait_for_selector("[role=status] >> text=is back")
    assert conn.hget("rq:job:a", "status") == b"canceled"
    assert page.get_by_role("button", name="Undo").count() == 0


@pytest.mark.gate
def test_the_pointer_shows_the_numbers_of_its_minute(dashboard: House, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(basic.noop)
    Broker(conn).note_history("web1.1", 1, {("queue", "sms"): [(3, "1:completed", 7), (0, "1:completed", 2)]})
    page = dashboard.visit("/queues/sms")
    chart = page.get_by_role("img", name="Jobs that finished")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    tip = page.locator(".tip")
    assert not tip.is_visible()
    page.mouse.move(box["x"] + box["width"] * 56 / 59, box["y"] + box["height"] / 2)  # of sixty minutes the fourth from the end
    row = page.locator("figure", has=chart).locator("tbody tr").nth(56)
    time, value = row.locator("th").text_content(), row.locator("td").text_content()
    assert value == "7" and str(time) in tip.inner_text()
    assert "finished  7" in tip.inner_text() and "UTC" in tip.inner_text()
    page.keyboard.press("r")  # a refresh leaves it where it is
    with page.expect_response(lambda answer: answer.request.headers.get("hx-request") == "true"):
        page.keyboard.press("r")
    assert tip.is_visible()
    page.mouse.move(1, 1)
    assert not tip.is_visible()


@pytest.mark.parametrize("width", [390, 1280, 1500])
def test_the_text_of_a_tile_has_two_lines_at_most(dashboard: House, conn: redis.Redis, width: int) -> None:
    Broker(conn).note_history("web1.1", 1, {("queue", "sms"): [(3, "1:completed", 12345), (3, "1:failed", 4321)]})
    Queue("sms", conn).enqueue(basic.noop)
    lines = dashboard.visit("/", width=width).evaluate(LINES)
    assert len(lines) == 8 and max(lines) <= 2, lines


def write_log(conn: redis.Redis, lines: int) -> None:
    now = Inspector(conn).now().timestamp() * 1000
    conn.hset(
        "rq:log:a",
        mapping={"lines": "\n".join(f"{now:.0f} line {n}" for n in range(lines)), "left_out": 0, "attempt": 1, "at": int(now)},
    )


@pytest.mark.gate
def test_the_log_of_a_job_that_runs_comes_by_itself_and_stays_at_its_end(dashboard: House, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(basic.noop, job_id="a")
    hand = Hand(Broker(conn), "sms", name="busy.1")
    hand.take()
    write_log(conn, 60)
    page = dashboard.visit("/jobs/a")
    log = page.locator(".log")
    left = "one => one.scrollHeight - one.clientHeight - one.scrollTop"
    assert log.evaluate("one => one.scrollHeight > one.clientHeight") and log.evaluate(left) < 2
    write_log(conn, 80)
    page.wait_for_selector(".log >> text=line 79")  # no key is pressed
    eventually(lambda: log.evaluate(left) < 2)
    log.evaluate("one => { one.scrollTop = 10 }")
    page.wait_for_selector(".log[data-up]")
    write_log(conn, 100)
    page.wait_for_selector(".log >> text=line 99")
    assert log.evaluate("one => one.scrollTop") == 10, "who reads above is left there"
    hand.broker.deregister(hand.name, hand.incarnation)


def test_a_copy_is_looked_at_before_it_is_enqueued(dashboard: House, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(basic.noop, job_id="a")
    Job.fetch("a", conn).cancel()
    page = dashboard.visit("/jobs/a/copy")
    page.locator("main [name=queue]").fill("mail")
    page.get_by_role("button", name="Show what differs").click()
    assert page.locator("ins").inner_text() == "+ queue: mail" and page.locator("main [name=queue]").input_value() == "mail"
    assert not conn.exists("rq:queue:mail")


@pytest.mark.parametrize(("width", "height"), [(390, 900), (1280, 420)])
def test_the_navigation_shows_the_page_that_is_open_and_tab_begins_before_it(dashboard: House, width: int, height: int) -> None:
    page = dashboard.visit("/redis")
    page.set_viewport_size({"width": width, "height": height})
    page.reload()
    inside = "one => { const box = one.getBoundingClientRect(); return box.left >= 0 && box.right <= innerWidth && box.bottom <= innerHeight }"
    assert page.locator("nav [aria-current]").evaluate(inside)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
