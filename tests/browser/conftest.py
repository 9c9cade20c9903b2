"""A browser for all tests of a process, and for each test a person at it whose troubles fail it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis

from fusion.settings import use_settings
from fusion.store.redis_server.binary import ServerBinary
from fusion.store.redis_server.instance import EmbeddedRedis
from tests.browser import chromium
from tests.browser.house import House, write_tokens
from tests.browser.person import Person
from tests.browser.staged import stage
from tests.kit import guarded
from tests.web.harness import ServerProcess

if TYPE_CHECKING:
    from playwright.sync_api import Browser

People = Callable[[str], Person]
#: A server, its tokens, and the address of its Redis.
Served = tuple[ServerProcess, dict[str, str], str]


# Of this folder, not of the run: Playwright keeps an event loop at work, beside which no test could start one.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """The one that is there; without any the test is skipped, or fails where FUSION_TEST_BROWSER=required."""
    try:
        with chromium.found() as (playwright, program):
            launched = playwright.chromium.launch(executable_path=program, args=chromium.ARGUMENTS, timeout=60_000)
            yield launched
            launched.close()
    except chromium.NoBrowser as error:
        if chromium.REQUIRED:
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture
def people(browser: Browser) -> Iterator[People]:
    """`people(url)`: somebody who looks at that server. The test fails for what went wrong on their pages."""
    met: list[Person] = []

    def come(url: str) -> Person:
        met.append(Person(browser, url))
        return met[-1]

    yield come
    try:
        for person in met:
            person.check()
    finally:
        for person in met:
            person.close()


@pytest.fixture(scope="package")
def _served(redis_server: EmbeddedRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    yield from _serving(redis_server.url, tmp_path_factory.mktemp("dashboard"))


@pytest.fixture
def dashboard(browser: Browser, conn: redis.Redis, _served: Served, people: People) -> House:
    """`dashboard.visit("/queues", "operator")`: a page of a dashboard on the test's empty Redis."""
    house = House(people(_served[0].url), _served[1])
    house.forget()
    conn.flushall()
    return house


@pytest.fixture(scope="package")
def _staged(browser: Browser, server_binary: ServerBinary, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tempfile.mkdtemp(prefix="fus", dir="/tmp")
    redis_server = guarded.RedisOfTests(home, persistent=False, server=server_binary)
    try:
        redis_server.start()
        with pytest.MonkeyPatch.context() as patch, guarded.client(redis_server.url) as conn:
            patch.setenv("FUSION_REDIS_URL", redis_server.url)
            use_settings(None)
            stage(conn)
        use_settings(None)
        yield from _serving(redis_server.url, tmp_path_factory.mktemp("staged"))
    finally:
        redis_server.stop()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def staged(_staged: Served, people: People) -> House:
    """A dashboard on a Redis that holds one of everything (`staged.py`), for tests that only look."""
    return House(people(_staged[0].url), _staged[1])


def _serving(redis_url: str, directory: Path) -> Iterator[Served]:
    path = directory / "tokens.txt"
    tokens = write_tokens(path)
    server = ServerProcess(redis_url, directory / "log", "--dashboard", "--tokens", str(path))
    yield server, tokens, redis_url
    server.stop()
