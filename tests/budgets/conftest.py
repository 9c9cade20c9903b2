from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.worker.harness import Workers
from tests.worker.monitor import Monitor


@pytest.fixture
def workers(redis_url: str, tmp_path: Path) -> Iterator[Workers]:
    """Processes on the test's Redis; all are ended with the test."""
    found = Workers(redis_url, tmp_path)
    yield found
    found.stop()


@pytest.fixture
def monitor(redis_url: str, conn: redis.Redis) -> Iterator[Monitor]:
    watching = Monitor(redis_url, conn)
    yield watching
    watching.close()
