from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from fusion.cron.scheduler import Scheduler
from fusion.store.server_binary import ServerBinary
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
def private_redis(server_binary: ServerBinary) -> Iterator[PrivateRedis]:
    """A Redis that the test may pause and kill."""
    home = tempfile.mkdtemp(prefix="fus", dir="/tmp")
    server = PrivateRedis(home, server_binary)
    yield server
    server.close()
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def private_schedulers(private_redis: PrivateRedis, tmp_path: Path) -> Iterator[Schedulers]:
    """Schedulers on `private_redis`, which is running again when they are ended."""
    found = Schedulers(private_redis.url, tmp_path)
    yield found
    private_redis.revive()
    found.stop()
