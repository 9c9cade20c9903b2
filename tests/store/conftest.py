from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from fusion.store.redis_server.binary import ServerBinary
from fusion.store.write.broker import Broker
from fusion.store.write.limit_broker import LimitBroker
from tests.kit.hands import Hand
from tests.kit.servers import ScriptedServer, SpawnedServer, closing_all


@pytest.fixture
def hand(broker: Broker) -> Hand:
    """A worker that serves the queue `q`."""
    return Hand(broker, "q")


@pytest.fixture
def limits(conn: redis.Redis) -> LimitBroker:
    """Of concurrency keys, on the test's empty Redis."""
    return LimitBroker(conn)


@pytest.fixture
def spawn(server_binary: ServerBinary) -> Iterator[Callable[..., SpawnedServer]]:
    """Starts a server with these options; it is gone after the test."""
    with closing_all() as keep:

        def start(*args: str) -> SpawnedServer:
            server = SpawnedServer(server_binary.path, "--save", "", *args)
            keep(server)
            return server

        yield start


@pytest.fixture
def scripted() -> Iterator[Callable[[Callable[[int], bytes | None]], ScriptedServer]]:
    with closing_all() as keep:

        def start(answer: Callable[[int], bytes | None]) -> ScriptedServer:
            server = ScriptedServer(answer)
            keep(server)
            return server

        yield start
