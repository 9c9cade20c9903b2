"""What all tests of the in-process manager share."""

from __future__ import annotations

import time

import pytest

from tests.inprocess.hands import threads


@pytest.fixture(autouse=True)
def nobody_of_the_test_before() -> None:
    """A manager by a hand-led clock is asked to stop and not awaited: its threads have the names of the next test's, and end before it."""
    until = time.monotonic() + 5
    while threads() and time.monotonic() < until:
        time.sleep(0.005)
