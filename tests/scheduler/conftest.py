from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from fusion.cron.scheduler import Scheduler
from tests.scheduler.harness import Schedulers
from tests.worker.harness import PrivateRedis, Workers


@pytest.fixture
def schedulers(redis_url: str, tmp_path: Path) -> Iterator[Schedulers]:
    """Schedulers on the test's Redis; all are ended with the test."""
    found = Schedulers(redis_url, tmp_path)
    yield found
    found.stop()


@pytest.fixture
def cron(conn: redis.Redis) -> Scheduler:
    """What a program uses to make entries."""
    return Scheduler(conn)


@pytest.fixture
def workers(redis_url: str, tmp_path: Path) -> Iterator[Workers]:
    found = Workers(redis_url, tmp_path)
    yield found
    found.stop()


@pytest.fixture
def private_schedulers(private_redis: PrivateRedis, tmp_path: Path) -> Iterator[Schedulers]:
    """Schedulers on `private_redis`, which is running again when they are ended."""
    found = Schedulers(private_redis.url, tmp_path)
    yield found
    private_redis.revive()
    found.stop()
