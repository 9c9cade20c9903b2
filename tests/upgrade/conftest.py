from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from fusion.store.broker import Broker
from tests.cli.conftest import invoke
from tests.store.conftest import spawn
from tests.web.conftest import start as start_server
from tests.web.conftest import tokens
from tests.worker.harness import Workers

__all__ = ["invoke", "spawn", "start_server", "tokens"]


@pytest.fixture
def broker(conn: redis.Redis) -> Broker:
    """On an empty Redis."""
    return Broker(conn)


@pytest.fixture
def workers(redis_url: str, tmp_path: Path) -> Iterator[Workers]:
    """Workers, schedulers and relays on the test's Redis; all are ended with the test."""
    found = Workers(redis_url, tmp_path)
    yield found
    found.stop()
