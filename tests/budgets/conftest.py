from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tests.kit.monitor import Monitor


@pytest.fixture
def monitor(redis_url: str, conn: redis.Redis) -> Iterator[Monitor]:
    watching = Monitor(redis_url, conn)
    yield watching
    watching.close()
