"""The kit notices what it is there for: each page here has one fault."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

from tests.browser.conftest import People

if TYPE_CHECKING:
    from tests.browser.person import Person

pytestmark = pytest.mark.browser

POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self'"
PAGES = {
    "/sound": "<p>sound</p>",
    "/inline": "<script>document.title = 'ran'</script>",
    "/style": "<p style='color: red'>red</p>",
    "/script": "<script src='/throws.js'></script>",
    "/missing": "<script src='/nowhere.js'></script>",
    "/elsewhere": "<img src='http://tracker.invalid/pixel.png'>",
    "/unguarded": "<img src='http://tracker.invalid/pixel.png'>",
    "/wide": "<div id='wide'></div><link rel='stylesheet' href='/wide.css'>",
    "/mute": "<main><img src='/nowhere.png'><button></button></main>",
}
FILES = {
    "/throws.js": ("text/javascript", "throw new Error('of the script')"),
    "/wide.css": ("text/css", "#wide { width: 500px; height: 1px }"),
}


def site(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    path = environ["PATH_INFO"]
    kind, text = FILES.get(path, ("text/html", PAGES.get(path, "")))
    headers = [("Content-Type", f"{kind}; charset=utf-8"), ("Referrer-Policy", "no-referrer")]
    if path != "/unguarded":
        headers.append(("Content-Security-Policy", POLICY))
    start_response("200 OK" if text else "404 Not Found", headers)
    head = "<!doctype html><html lang='en'><title>a page</title><link rel='icon' href='data:,'>"
    return [(head + text if kind == "text/html" and text else text).encode()]


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with make_server("127.0.0.1", 0, site, handler_class=_Silent) as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()
        thread.join()


@pytest.fixture
def person(people: People, server: str) -> Person:
    return people(server)


@pytest.mark.parametrize("javascript", [True, False])
def test_a_sound_page_is_no_trouble(person: Person, javascript: bool) -> None:
    assert person.open("/sound", javascript=javascript).text_content("p") == "sound"
    person.check()


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/inline", "content policy: script-src"),
        ("/style", "content policy: style-src"),
        ("/script", "uncaught: .*of the script"),
        ("/missing", "404"),
        ("/elsewhere", "content policy: img-src refuses http://tracker.invalid"),
        ("/unguarded", "foreign request: http://tracker.invalid/pixel.png"),
    ],
)
def test_a_fault_of_a_page_is_noticed(person: Person, path: str, told: str) -> None:
    person.open(path)
    with pytest.raises(AssertionError, match=told):
        person.check()
    person.met(told)
    person.troubles.clear()  # the same once more, in the browser's words


@pytest.mark.parametrize("path", ["/style", "/elsewhere"])
def test_a_breach_is_noticed_without_javascript_too(person: Person, path: str) -> None:
    person.open(path, javascript=False)
    person.met("Content Security Policy")
    person.troubles.clear()  # and that it was asked for at all


def test_an_expected_failure_must_occur(person: Person) -> None:
    person.open("/sound")
    with pytest.raises(AssertionError, match="nothing like"):
        person.met("404")
