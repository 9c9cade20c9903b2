"""Every page of the table of routes, on a Redis that holds one of everything: new pages are looked at like those that were there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.architecture.source import ROOT
from tests.browser.house import House, addresses
from tests.browser.staged import MARKUP
from tests.cli.test_every_command import SECRET
from tests.cli.test_output import BAD
from tests.web.strangers import MARKER

pytestmark = pytest.mark.browser

AXE = ROOT / "tests" / "browser" / "vendor" / "axe.min.js"
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


@every_page
def test_it_opens_and_refreshes_without_trouble(staged: House, path: str) -> None:
    page = staged.visit(path)
    assert page.locator("main h1").count() == 1
    if page.locator("main[hx-get]").count():  # a form to be filled in stands still
        with page.expect_response(lambda answer: answer.request.headers.get("hx-request") == "true") as ticked:
            page.keyboard.press("r")
        assert ticked.value.status in (200, 304)
    assert page.locator("main").count() == 1
    staged.person.check()


@every_page
def test_nothing_sticks_out_on_a_phone(staged: House, path: str) -> None:
    assert staged.visit(path, width=390).evaluate(WIDER) == []


@every_page
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_people_who_see_or_move_otherwise_can_use_it(staged: House, path: str, scheme: Any) -> None:
    page = staged.visit(path, scheme=scheme)
    page.evaluate(AXE.read_text() + ";0")
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert found["passes"]
    told = [
        f"{one['impact']} {one['id']}: {node['html'][:200]} {node['failureSummary']}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"][:3]
    ]
    assert not told, "\n".join(told)


@every_page
def test_without_javascript_it_shows_and_does_the_same(staged: House, path: str) -> None:
    page, scripted = staged.visit(path, javascript=False), staged.visit(path)
    for what in ("main h1", "main h2", "main tr", "main button", "main a", "main form"):
        assert page.locator(what).count() == scripted.locator(what).count(), what
    assert page.locator("main h1").inner_text() == scripted.locator("main h1").inner_text()
    assert not page.locator("header .tools").is_visible()
    for form in page.locator("main form").all():
        action, method = form.get_attribute("action") or "", (form.get_attribute("method") or "get").lower()
        assert action.startswith("/") and method in ("get", "post"), f"{method} {action}: a form that works without a script"
        assert form.locator("button:not([type=button]), input[type=submit]").count(), f"{action}: nothing to press"


@every_page
def test_what_strangers_wrote_and_what_is_secret_stays_out_of_it(staged: House, path: str) -> None:
    page = staged.visit(path)
    assert SECRET not in page.content()
    page.evaluate(CARRIED)
    said = page.content()
    assert [one for one in (*BAD, MARKUP) if one in said] == []
    assert page.locator("main img, main script, main style").count() == 0
    assert "pwned" not in page.title()
    assert "&lt;49" not in page.inner_text("main")


@every_page
def test_who_may_see_one_queue_finds_nothing_of_another(staged: House, path: str) -> None:
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
