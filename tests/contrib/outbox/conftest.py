"""What an outbox registers goes with the test."""

from __future__ import annotations

import pytest

from fusion import middleware


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """An `Outbox` registers a middleware for as long as its process lives, which no other tests of this process must have."""
    monkeypatch.setattr(middleware, "registered", middleware.registered)
