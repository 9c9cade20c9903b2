"""The site of the docs in a real browser: questions typed into its search lead to their pages, and nothing comes from another host."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.browser.person import Person
from tests.browser.questions import CELERY, QUESTIONS
from tests.kit.reader import ROOT

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        if self.path == "/favicon.ico":  # the browser asks for one by itself; the site has none
            self.send_response(204)
            self.end_headers()
            return
        super().do_GET()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Built anew, and served at a port of its own."""
    built = tmp_path_factory.mktemp("site")
    build = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "-q",
        "-b",
        "html",
        "-d",
        str(built / ".doctrees"),
        str(ROOT / "docs"),
        str(built),
    ]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(built)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture
def search(site: str, people: Callable[[str], Person]) -> Callable[[str], list[str]]:
    """Type into the search of the first page, and return the first three pages that it finds, once each result shows lines of its page."""
    page = people(site).open("/index.html")

    def typed(text: str) -> list[str]:
        page.goto("/index.html")
        box = page.locator("input[name=q]").first
        box.fill(text)
        box.press("Enter")
        page.wait_for_function("document.querySelector('#search-results p.search-summary')?.innerText.match(/found|not match/)")
        page.wait_for_function("!document.querySelector('#search-results ul.search > li:not(:has(p.context))')")
        links = page.locator("#search-results ul.search > li > a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
        found = dict.fromkeys(link.split("?")[0].split("#")[0].removesuffix(".html") for link in links)
        return list(found)[:3]

    return typed


def test_27_questions_as_users_type_them(search: Callable[[str], list[str]]) -> None:
    """25 at least lead to their page among the first three."""
    found = {question: search(question) for question in QUESTIONS}
    missed = {question: pages for question, pages in found.items() if not set(pages) & set(QUESTIONS[question])}
    assert len(missed) <= 2, missed


def test_the_words_of_celery(search: Callable[[str], list[str]]) -> None:
    found = {words: search(words) for words in CELERY}
    missed = {words: pages for words, pages in found.items() if not set(pages) & {"how-to/celery-words", "from-celery"}}
    assert len(missed) <= 2, missed


def test_a_code_is_found_where_it_is_explained(search: Callable[[str], list[str]]) -> None:
    assert "errors" in search("FUS-113") or "troubleshooting" in search("FUS-113")


def test_a_page_that_was_found_marks_the_word_in_its_text(site: str, people: Callable[[str], Person]) -> None:
    """A word that the titles of the theme's icons have, too: Light mode."""
    page = people(site).open("/search.html?q=mode")
    page.locator("#search-results ul.search > li > a").first.click()
    page.locator("article span.highlighted").first.wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_has_its_picture_and_colours_of_the_scheme(scheme: str, site: str, people: Callable[[str], Person]) -> None:
    page = people(site).open("/dashboard.html", scheme=scheme)  # type: ignore[arg-type]
    shown = page.locator("article img:visible").first.get_attribute("src") or ""
    assert Path(shown).stem.endswith(scheme)
    light = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert light == (scheme == "light")


def test_a_tab_that_is_chosen_is_chosen_in_all_sets(site: str, people: Callable[[str], Person]) -> None:
    page = people(site).open("/tutorial.html")
    page.get_by_text("FastAPI", exact=True).first.click()
    assert page.get_by_text("uvicorn web:app").is_visible()
    assert not page.get_by_text("flask --app web").is_visible()
