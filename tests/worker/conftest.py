from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.harness import PrivateRedis, Workers


@pytest.fixture
def workers(redis_url: str, tmp_path: Path) -> Iterator[Workers]:
    """Workers on the test's Redis; all are ended with the test."""
    found = Workers(redis_url, tmp_path)
    yield found
    found.stop()


@pytest.fixture
def private_workers(private_redis: PrivateRedis, tmp_path: Path) -> Iterator[Workers]:
    """Workers on `private_redis`, which is running again when they are ended."""
    found = Workers(private_redis.url, tmp_path)
    yield found
    private_redis.revive()
    found.stop()
