"""A scheduler's entry in Redis: its name and its heartbeat."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable

from fusion import __version__
from fusion.runtime.redis_calls import attempt
from fusion.runtime.redis_link import RedisAway, RedisLink
from fusion.settings import Settings
from fusion.store.write.cron_broker import CronBroker


class Presence:
    """Keeps the scheduler in the list of schedulers, under a name of its own: one that a live other has gets `.1`, `.2`, ..."""

    def __init__(self, settings: Settings, broker: CronBroker, link: RedisLink) -> None:
        self._settings, self._broker, self._link = settings, broker, link
        self.name = self._base = settings.name or f"{socket.gethostname()}.{os.getpid()}"
        self._incarnation = secrets.token_hex(8)
        self._fields = {
            "pid": os.getpid(),
            "hostname": socket.gethostname(),
            "fusion": __version__,
            "app": settings.app,
            "version": settings.app_version,
        }
        self.next_at = 0.0

    def enter(self) -> None:
        """Enter the list; redis-py's errors come as they are. A scheduler that is too old for the data goes on asking."""
        self._link.begin(lambda: self._beat(lambda call: call()))

    def tick(self, now: float) -> None:
        """Say that it lives. RedisAway if Redis does not answer, CallRefused if the list is none."""
        self._beat(lambda call: attempt(self._link, call))

    def leave(self) -> None:
        """Take the entry back. RedisAway if Redis does not answer; it is then taken for dead after its lease."""
        if not self._link.outdated:
            attempt(self._link, lambda: self._broker.scheduler_leave(self.name, self._incarnation))

    def _beat(self, call: Callable[[Callable[[], bool]], bool]) -> None:
        lease, ttl, n = self._settings.lease, self._settings.worker_ttl, 0
        self.next_at = time.monotonic() + lease / 3
        try:
            while not call(lambda: self._broker.scheduler_beat(self.name, self._incarnation, lease, ttl, self._fields)):
                n += 1
                self.name = f"{self._base}.{n}"
        except RedisAway:
            self.next_at = 0.0
            raise
