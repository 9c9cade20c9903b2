"""The dashboard inside of other applications, under a prefix: the examples of docs/examples as they stand."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import redis

from fusion import Queue
from tests.browser.conftest import People, Served
from tests.browser.house import addresses
from tests.jobs import basic
from tests.kit.process import ProcessUnderTest

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

pytestmark = pytest.mark.browser

PASSWORD = "of anna"  # noqa: S105


class Example(ProcessUnderTest):
    """One of docs/examples on a free port."""

    SETTINGS: ClassVar[dict[str, str]] = {"DJANGO_SUPERUSER_PASSWORD": PASSWORD}

    def __init__(self, redis_url: str, log: Path, framework: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        super().__init__(redis_url, log, f"docs/examples/dashboard_in_{framework}.py", str(port))
        self.until(self._answers, 60, "it answers")

    def _answers(self) -> bool:
        try:
            return bool(urlopen(f"{self.url}/login/nobody").read())
        except URLError as error:
            return hasattr(error, "code")  # an answer, if not a friendly one


def enter(framework: str) -> Callable[[BrowserContext], None]:
    """How anna logs in to the application, before she opens the dashboard."""

    def log_in(context: BrowserContext) -> None:
        if framework != "django":
            assert context.request.get("/login/anna").ok
            return
        page = context.new_page()
        page.route("**/favicon.ico", lambda route: route.fulfill(status=204))  # the admin has none
        page.goto("/ops/queues")
        page.get_by_label("Username").fill("anna")
        page.get_by_label("Password").fill(PASSWORD)
        page.keyboard.press("Enter")
        page.wait_for_selector("header nav[aria-label=Pages]")
        page.close()

    return log_in


@pytest.fixture(params=["flask", "django", "fastapi"])
def framework(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param)
    return str(request.param)


def test_the_example_runs_under_its_prefix(
    people: People, conn: redis.Redis, redis_url: str, tmp_path: Path, framework: str
) -> None:
    Queue("sms", conn).enqueue(basic.noop)
    example = Example(redis_url, tmp_path / "log", framework)
    try:
        person = people(example.url)
        page = person.open("/ops/queues", before=enter(framework))
        assert [one for one in addresses_in(page.content()) if not one.startswith("/ops/")] == page.locator(
            "header nav [aria-label=Elsewhere] a"
        ).evaluate_all("all => all.map(one => one.getAttribute('href'))"), "links= alone leads out of it"
        page.locator("main").get_by_role("button", name="Pause").click()
        page.get_by_role("button", name="Yes").click()
        page.wait_for_selector("[role=status]")
        assert "sms is paused" in page.inner_text("[role=status]")
        assert page.url == f"{example.url}/ops/queues"
        with page.expect_response(lambda answer: answer.request.headers.get("hx-request") == "true") as ticked:
            page.keyboard.press("r")
        assert ticked.value.status in (200, 304)
        assert {entry[b"who"] for _, entry in conn.xrange("rq:audit") if b"who" in entry} == {b"anna"}
        person.check()
        stranger = person.context()
        answer = stranger.request.get("/ops/queues", max_redirects=0)
        assert answer.status == (302 if framework == "django" else 403)
        assert "sms" not in answer.text()
        cross = stranger.request.post("/ops/queues/sms/resume", headers={"Origin": "http://elsewhere.example"}, max_redirects=0)
        assert cross.status in (302, 403) and conn.exists("rq:paused:sms")
    finally:
        example.stop()


def addresses_in(html: str) -> list[str]:
    """Of links, forms, scripts and styles of this host."""
    found = re.findall(r'(?:href|src|action|hx-get)="([^"]*)"', html)
    return [one for one in found if not one.startswith(("data:", "#"))]


@pytest.fixture(scope="module")
def mounted(_staged: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Example]:
    """On the Redis that holds one of everything."""
    pytest.importorskip("flask")
    example = Example(_staged[2], tmp_path_factory.mktemp("mounted") / "log", "flask")
    yield example
    example.stop()


@pytest.mark.parametrize("path", addresses())
def test_every_page_stays_under_the_prefix(people: People, mounted: Example, path: str) -> None:
    person = people(mounted.url)
    page = person.open(f"/ops{path}", before=enter("flask"))
    assert {one for one in addresses_in(page.content()) if not one.startswith("/ops/")} == {"/"}
    assert page.locator("header nav a[aria-current]").count() == 1
