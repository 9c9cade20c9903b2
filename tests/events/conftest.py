from __future__ import annotations

import pytest
import redis

from fusion.store.broker import Broker
from fusion.store.event_broker import EventBroker
from fusion.store.event_inspector import EventInspector


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
