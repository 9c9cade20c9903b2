from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion.settings import Settings, use_settings
from tests.courier.harness import EVERY_PORT, HERE, World
from tests.kit.receivers import Receiver


@pytest.fixture
def receiver() -> Iterator[Callable[..., Receiver]]:
    """`receiver(endpoint)` starts a server; all are stopped at the end."""
    started: list[Receiver] = []

    def start(handle: Any, ip: str = "127.0.0.1") -> Receiver:
        started.append(Receiver(handle, None, ip))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def world(conn: redis.Redis, redis_url: str, tmp_path: Path) -> Iterator[World]:
    """Producers of the test may name plain http, any port and this machine."""
    use_settings(
        Settings.load(callback_allow_http=True, callback_ports=EVERY_PORT, callback_allowed_hosts=(*HERE, "::ffff:127.0.0.1"))
    )
    found = World(conn, redis_url, tmp_path)
    yield found
    found.close()
