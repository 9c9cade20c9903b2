"""A browser for all tests of a process, and for each test a person at it whose troubles fail it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser.person import Person

People = Callable[[str], "Person"]


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
    from tests.browser.person import Person

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
