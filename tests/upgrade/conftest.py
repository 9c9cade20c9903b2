from __future__ import annotations

import pytest
import redis

from fusion.store.write.broker import Broker
from tests.cli.conftest import invoke
from tests.store.conftest import spawn
from tests.web.conftest import start as start_server
from tests.web.conftest import tokens

__all__ = ["invoke", "spawn", "start_server", "tokens"]


@pytest.fixture
def broker(conn: redis.Redis) -> Broker:
    """On an empty Redis."""
    return Broker(conn)
