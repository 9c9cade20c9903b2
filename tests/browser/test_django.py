"""The dashboard in the urls of a Django project, as its staff meets it: through Django's own login, in the roles that its permissions give."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
import redis

from fusion.job import Job
from tests.browser.conftest import People
from tests.contrib.harness import manage
from tests.kit.process import ProcessUnderTest
from tests.operations.hands import failed

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

PASSWORD = "of the staff"  # noqa: S105
PEOPLE = f"""
from django.contrib.auth.models import Permission, User
for name, permissions in {{"vera": [], "otto": ["operate_dashboard"]}}.items():
    user = User.objects.create_user(name, password={PASSWORD!r}, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
User.objects.create_user("kunde", password={PASSWORD!r})
"""


class Shop(ProcessUnderTest):
    """The shop under Django's own server, which serves the admin's style, too."""

    SETTINGS: ClassVar[dict[str, str]] = {}

    def __init__(self, redis_url: str, home: Path, log: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        env = {"DJANGO_SETTINGS_MODULE": "tests.contrib.shop.settings", "SHOP_HOME": str(home)}
        for words in (("migrate",), ("shell", "-c", PEOPLE)):
            done = manage(*words, **env)
            assert done.returncode == 0, done.stderr
        program = ("-m", "tests.contrib.shop.manage", "runserver", "--noreload", "--insecure", str(port))
        super().__init__(redis_url, log, *program, env=env)
        self.until(self._answers, 60, "it answers")

    def _answers(self) -> bool:
        try:
            return bool(urlopen(f"{self.url}/admin/login/").read())
        except HTTPError:
            raise
        except URLError:
            return False


@pytest.fixture
def shop(redis_url: str, conn: redis.Redis, tmp_path: Path) -> Iterator[Shop]:
    found = Shop(redis_url, tmp_path, tmp_path / "log")
    yield found
    found.stop()


def at(path: str, who: str) -> Callable[[BrowserContext], None]:
    """Asks for that page, and logs in where Django asks for it."""

    def log_in(context: BrowserContext) -> None:
        page = context.new_page()
        page.route("**/favicon.ico", lambda route: route.fulfill(status=204))  # the admin has none
        page.goto(path)
        assert "/admin/login/?next=" in page.url
        page.get_by_label("Username").fill(who)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(f"**{path}")
        page.close()

    return log_in


def buttons(page: Page) -> list[str]:
    """What can be pressed that changes something."""
    return page.locator("main form[method=post] button").all_inner_texts()


def test_staff_logs_in_by_django_looks_and_does_what_its_permissions_say(people: People, conn: redis.Redis, shop: Shop) -> None:
    failed(conn, 2)
    vera = people(shop.url)
    page = vera.open("/ops/fusion/jobs/f0", before=at("/ops/fusion/jobs/f0", "vera"))
    assert "f0" in page.inner_text("main")
    assert buttons(page) == []
    page.goto("/ops/fusion/queues")
    assert buttons(page) == []
    refused = page.context.request.post(
        "/ops/fusion/jobs/f0/requeue", form={"back": "/jobs"}, headers={"Origin": shop.url}, max_redirects=0
    )
    assert refused.status == 403
    otto = people(shop.url)
    page = otto.open("/ops/fusion/jobs/f0", before=at("/ops/fusion/jobs/f0", "otto"))
    assert "Requeue" in buttons(page)
    page.locator("main").get_by_role("button", name="Requeue", exact=True).click()
    page.wait_for_selector("[role=status]")
    assert "Job f0 was put back into its queue" in page.inner_text("[role=status]")
    assert page.url == f"{shop.url}/ops/fusion/jobs/f0"
    assert [Job.fetch(job_id, conn).get_status() for job_id in ("f0", "f1")] == ["queued", "failed"]
    assert {entry[b"who"] for _, entry in conn.xrange("rq:audit") if b"who" in entry} == {b"otto"}
    page.route("**/favicon.ico", lambda route: route.fulfill(status=204))
    page.get_by_role("link", name="Admin", exact=True).click()
    page.wait_for_url("**/admin/")
    link = page.get_by_role("link", name="Jobs: 1 waiting, 0 running, 1 failed")
    link.first.click()
    page.wait_for_url("**/ops/fusion/")
    assert page.locator("header nav[aria-label=Pages]").count() == 1
    kunde = people(shop.url).context()
    token = kunde.request.get("/admin/login/").text().split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
    form = {"username": "kunde", "password": PASSWORD, "csrfmiddlewaretoken": token, "next": "/ops/fusion/"}
    answer = kunde.request.post("/admin/login/?next=/ops/fusion/", form=form, headers={"Referer": shop.url})
    assert "staff account" in answer.text()
    assert "/admin/login/" in kunde.request.get("/ops/fusion/jobs/f0").url
