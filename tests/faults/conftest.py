from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.faults.rig.proxy import FaultProxy
from tests.kit import guarded
from tests.kit.workers import Workers
from tests.scheduler.conftest import cron as cron
from tests.web.conftest import _service as _service
from tests.web.conftest import service as service
from tests.web.conftest import start as start
from tests.web.conftest import tokens as tokens
from tests.worker.test_redis_trouble import Jobs


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests below this folder are long."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.long)


@pytest.fixture
def admin(redis_url: str) -> Iterator[redis.Redis]:
    """A client of the test alone, on an empty Redis: it may flush everything and keep keys of its own."""
    client = guarded.admin_client(redis_url)
    yield client
    client.close()


@pytest.fixture
def proxy(redis_url: str, conn: redis.Redis) -> Iterator[FaultProxy]:
    """The way to the test's Redis for those whose network fails; `conn` has its own."""
    found = FaultProxy(redis_url, conn)
    yield found
    found.close()


@pytest.fixture
def jobs(conn: redis.Redis, tmp_path: Path) -> Jobs:
    """On the test's Redis, past `proxy`."""
    return Jobs(conn, tmp_path)


@pytest.fixture
def fleet(proxy: FaultProxy, tmp_path: Path) -> Iterator[Workers]:
    """Workers behind `proxy`, which passes everything again when they are ended."""
    found = Workers(proxy.url, tmp_path)
    yield found
    proxy.lift()
    found.stop()
