"""Fixtures: real processes on the test's Redis, or on one of its own. All are ended with the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.private_redis import PrivateRedis
from tests.kit.relays import Relays
from tests.kit.schedulers import Schedulers
from tests.kit.workers import Workers


@pytest.fixture
def workers(redis_url: str, tmp_path: Path) -> Iterator[Workers]:
    found = Workers(redis_url, tmp_path)
    yield found
    found.stop()


@pytest.fixture
def schedulers(redis_url: str, tmp_path: Path) -> Iterator[Schedulers]:
    found = Schedulers(redis_url, tmp_path)
    yield found
    found.stop()


@pytest.fixture
def relays(redis_url: str, tmp_path: Path) -> Iterator[Relays]:
    found = Relays(redis_url, tmp_path)
    yield found
    found.stop()


@pytest.fixture
def private_workers(private_redis: PrivateRedis, tmp_path: Path) -> Iterator[Workers]:
    """On `private_redis`, which is running again when they are ended."""
    found = Workers(private_redis.url, tmp_path)
    yield found
    private_redis.revive()
    found.stop()


@pytest.fixture
def private_schedulers(private_redis: PrivateRedis, tmp_path: Path) -> Iterator[Schedulers]:
    """On `private_redis`, which is running again when they are ended."""
    found = Schedulers(private_redis.url, tmp_path)
    yield found
    private_redis.revive()
    found.stop()
