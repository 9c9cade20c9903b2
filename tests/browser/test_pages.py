"""Every page of the table of routes, on a Redis that holds one of everything: new pages are looked at like those that were there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from tests.architecture.source import ROOT
from tests.browser.house import House, addresses
from tests.browser.staged import MARKUP
from tests.cli.test_every_command import SECRET
from tests.cli.test_output import BAD
from tests.kit.waiting import eventually
from tests.web.strangers import MARKER

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

AXE = ROOT / "tests" / "browser" / "vendor" / "axe.min.js"
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
every_page = pytest.mark.parametrize("path", addresses())
#: What sticks out to the right, unless it is in something that scrolls by itself.
WIDER = """() => document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll("body *")].filter(one => {
    for (let up = one.parentElement; up; up = up.parentElement)
        if (getComputedStyle(up).overflowX !== "visible") return false
    return one.getBoundingClientRect().right > innerWidth + 1
}).map(one => one.outerHTML.slice(0, 120)).slice(0, 5).concat(["the page scrolls sideways"])"""

#: What a form sends back to the letter, and shows to nobody: ids, when they are chosen.
CARRIED = (
    """() => document.querySelectorAll("input[type=checkbox], input[type=hidden]").forEach(one => one.removeAttribute("value"))"""
)


#: How much of each there is, and of each form where it sends what, and how many buttons do.
COUNTED = ("main h1", "main h2", "main tr", "main button", "main a", "main form")
COUNTS = """all => all.map(one => document.querySelectorAll(one).length)"""
FORMS = """() => [...document.querySelectorAll("main form")].map(one => [one.getAttribute("action") || "", (one.getAttribute("method") || "get")
    .toLowerCase(), one.querySelectorAll("button:not([type=button]), input[type=submit]").length])"""


def alike(page: Page, plain: Page) -> bool:
    """There is as much on both; if not, both are asked again: a busy machine's search may stop early, and says so."""
    if page.evaluate(COUNTS, COUNTED) == plain.evaluate(COUNTS, COUNTED):
        return True
    page.reload()
    plain.reload()
    return False


@pytest.mark.gate
@every_page
def test_it_opens_and_refreshes_without_javascript_too_and_what_is_secret_or_of_strangers_stays_out(
    staged: House, path: str
) -> None:
    page, plain = staged.visit(path), staged.visit(path, javascript=False)
    assert page.locator("main h1").count() == 1
    eventually(lambda: alike(page, plain), interval=0.3)
    if page.locator("main[hx-get]").count():  # a form to be filled in stands still
        with page.expect_response(lambda answer: answer.request.headers.get("hx-request") == "true") as ticked:
            page.keyboard.press("r")
        assert ticked.value.status in (200, 304)
    assert page.locator("main").count() == 1
    staged.person.check()
    assert SECRET not in page.content()
    assert page.locator("main img, main script, main style").count() == 0
    assert "pwned" not in page.title()
    assert "&lt;49" not in page.inner_text("main")
    page.evaluate(CARRIED)
    said = page.content()
    assert [one for one in (*BAD, MARKUP) if one in said] == []
    assert (
        plain.locator("main h1").inner_text().strip() == page.locator("main h1").inner_text().strip()
    )  # a button only where a script runs
    assert not plain.locator("header .tools").is_visible()
    for action, method, buttons in plain.evaluate(FORMS):
        assert action.startswith("/") and method in ("get", "post"), f"{method} {action}: a form that works without a script"
        assert buttons, f"{action}: nothing to press"


@every_page
def test_people_who_see_or_move_otherwise_can_use_it_and_nothing_sticks_out_on_a_phone(staged: House, path: str) -> None:
    page = staged.visit(path)
    page.evaluate(AXE.read_text() + ";0")
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        assert found["passes"]
        told = [
            f"{scheme}: {one['impact']} {one['id']}: {node['html'][:200]} {node['failureSummary']}"
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"][:3]
        ]
        assert not told, "\n".join(told)
    page.set_viewport_size({"width": 390, "height": 900})
    assert page.evaluate(WIDER) == []


@every_page
def test_a_token_for_one_queue_shows_nothing_of_another(staged: House, path: str) -> None:
    context = staged.enter("sms")
    for headers in ({}, {"HX-Request": "true"}):
        answer = context.request.get(path, headers=headers)
        said = answer.text()
        assert answer.status in (200, 403, 404), said
        assert MARKER not in said.replace(path, ""), said[max(0, said.find(MARKER) - 200) :][:400]


#: What can be reached by Tab, in the order in which Tab should come to it.
STOPS = """() => [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")]
    .filter(one => one.checkVisibility() && !one.disabled && one.type !== "hidden" && !one.closest("dialog:not([open])")).length"""
FOCUSED = """() => {
    const one = document.activeElement, style = getComputedStyle(one)
    one.dataset.visited = Number(one.dataset.visited || 0) + 1
    return [one.tagName, Number(one.dataset.visited), one.outerHTML.slice(0, 100),
        style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 || style.boxShadow !== "none"]
}"""


@every_page
def test_tab_comes_to_everything_and_shows_where_it_is(staged: House, path: str) -> None:
    page = staged.visit(path)
    page.keyboard.press("p")  # no refresh while we walk
    assert page.locator("[tabindex]").evaluate_all("all => all.filter(one => one.tabIndex > 0).length") == 0
    stops = page.evaluate(STOPS)
    for nth in range(min(stops, 40)):
        page.keyboard.press("Tab")
        tag, times, html, shown = page.evaluate(FOCUSED)
        assert tag != "BODY", f"after {nth} of {stops}"
        assert times == 1, f"again after {nth} of {stops}: {html}"
        assert shown, f"nothing shows the focus of {html}"
