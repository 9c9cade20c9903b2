"""A relay's entry in Redis: its name, its heartbeat, and which sinks it serves."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence

from fusion import __version__
from fusion.kernel import defaults
from fusion.runtime.redis_link import RedisAway, RedisLink
from fusion.settings import Settings
from fusion.store.write.event_broker import EventBroker


class Presence:
    """Keeps the relay in the list of relays, under a name of its own: one that a live other has gets `.1`, `.2`, ..."""

    def __init__(self, settings: Settings, broker: EventBroker, link: RedisLink, sinks: Sequence[str]) -> None:
        self._settings, self._broker, self._link, self._sinks = settings, broker, link, sinks
        self.name = self._base = settings.name or f"{socket.gethostname()}.{os.getpid()}"
        self.lease = min(settings.lease, defaults.RELAY_LEASE)
        self._incarnation = secrets.token_hex(8)
        self._fields = {
            "pid": os.getpid(),
            "hostname": socket.gethostname(),
            "fusion": __version__,
            "sinks": ",".join(sinks),
        }
        self.next_at = 0.0

    def enter(self) -> None:
        """Enter the list; redis-py's errors come as they are. A relay that is too old for the data goes on asking."""
        self._link.begin(lambda: self._beat("", lambda call: call()))

    def beat(self, busy: str) -> None:
        """Say that it lives, and which sinks have not answered for a while. RedisAway if Redis does not answer."""
        self._beat(busy, self._link.attempt)

    def leave(self) -> None:
        """Take the entry back: others get at once what this relay holds. RedisAway if Redis does not answer."""
        if not self._link.outdated:
            self._link.attempt(lambda: self._broker.relay_leave(self.name, self._incarnation))

    def _beat(self, busy: str, call: Callable[[Callable[[], bool]], bool]) -> None:
        fields, n = {**self._fields, "busy": busy}, 0
        ttl, backlog = self._settings.worker_ttl, self._settings.events_backlog if self._sinks else 0
        self.next_at = time.monotonic() + self.lease / 3
        try:
            while not call(
                lambda: self._broker.relay_beat(self.name, self._incarnation, self.lease, ttl, self._sinks, backlog, fields)
            ):
                n += 1
                self.name = f"{self._base}.{n}"
        except RedisAway:
            self.next_at = 0.0
            raise
