"""The objects that all parts of one process share."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from redis import Redis

from fusion.runtime.loop import Loop
from fusion.runtime.redis_link import RedisLink
from fusion.settings import Settings
from fusion.store.client.connections import connect
from fusion.store.write.broker import Broker


@dataclass(frozen=True)
class ProcessContext:
    """One process's settings, broker, link to Redis, loop and log."""

    settings: Settings
    broker: Broker
    link: RedisLink
    loop: Loop
    log: logging.Logger

    def connect_blocking(self) -> Redis:
        """Open a connection for a call that waits inside Redis."""
        return connect(self.settings, role="blocking")
