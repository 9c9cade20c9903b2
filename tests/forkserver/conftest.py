"""One fork server for the tests of a module that do not harm it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.forkserver.driver import Driver


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    with Driver(max_result=100_000) as made:
        yield made
