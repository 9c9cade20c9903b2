from __future__ import annotations

import pytest
import redis

from fusion.store.read.event_inspector import EventInspector
from fusion.store.write.broker import Broker
from fusion.store.write.event_broker import EventBroker


@pytest.fixture
def broker(conn: redis.Redis) -> Broker:
    """On an empty Redis."""
    return Broker(conn)


@pytest.fixture
def events(conn: redis.Redis) -> EventBroker:
    return EventBroker(conn)


@pytest.fixture
def inspector(conn: redis.Redis) -> EventInspector:
    return EventInspector(conn)
