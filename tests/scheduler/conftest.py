from __future__ import annotations

import pytest
import redis

from fusion.cron.scheduler import Scheduler


@pytest.fixture
def cron(conn: redis.Redis) -> Scheduler:
    """What a program uses to make entries."""
    return Scheduler(conn)
