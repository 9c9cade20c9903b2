from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from fusion.store.read.event_inspector import EventInspector
from fusion.store.write.broker import Broker
from fusion.store.write.event_broker import EventBroker
from tests.kit.private_redis import PrivateRedis
from tests.kit.relays import Relays


@pytest.fixture
def private_relays(private_redis: PrivateRedis, tmp_path: Path) -> Iterator[Relays]:
    """Relays on `private_redis`, which is running again when they are ended."""
    found = Relays(private_redis.url, tmp_path)
    yield found
    private_redis.revive()
    found.stop()


@pytest.fixture
def broker(conn: redis.Redis) -> Broker:
    return Broker(conn)


@pytest.fixture
def events(conn: redis.Redis) -> EventBroker:
    return EventBroker(conn)


@pytest.fixture
def inspector(conn: redis.Redis) -> EventInspector:
    return EventInspector(conn)
