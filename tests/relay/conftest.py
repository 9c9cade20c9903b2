from __future__ import annotations

import pytest
import redis

from fusion.store.read.event_inspector import EventInspector


@pytest.fixture
def inspector(conn: redis.Redis) -> EventInspector:
    return EventInspector(conn)
