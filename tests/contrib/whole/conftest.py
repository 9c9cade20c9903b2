"""The shop as it is run, on each of its databases: by `make test-long` on that which is more likely to show a mistake."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contrib.databases import ShopDatabase, postgresql, sqlite


@pytest.fixture(scope="session")
def database(request: pytest.FixtureRequest) -> Iterator[ShopDatabase]:
    """The one that a test of ON_SQLITE or ON_POSTGRESQL is parametrised with."""
    with sqlite() if request.param == "SQLite" else postgresql() as found:
        yield found
