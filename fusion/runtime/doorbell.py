"""Waiting for work without polling: a blocked BLPOP on the doorbells of the worker's queues."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf

from redis import Redis
from redis.exceptions import RedisError

from fusion.store.client.resp import NonBlockingReader
from fusion.store.layout.keys import Keys

#: Seconds beyond the server's own timeout after which a silent connection counts as dead.
_PATIENCE = 2.0
_RECONNECT_PAUSE = 1.0


class Doorbell:
    """One connection that waits inside Redis while its process has room for work.

    A token only means "poll"; it never carries the job. `armed`: a wait is under way. It can't be cancelled, so a token may come when no
    slot is free any more; then the worker rings for another one. `high`: wait only for jobs of HIGH and above.
    """

    def __init__(self, connect: Callable[[], Redis], keys: Keys, wait: float, *, high: bool = False) -> None:
        self._connect, self._keys, self._wait = connect, keys, wait
        self._bell = keys.wake_high if high else keys.wake
        self._channel: NonBlockingReader | None = None
        self._silent_after = 0.0
        self._next_try = 0.0
        self.armed = False

    def fileno(self) -> int | None:
        """The connection's descriptor; None while there is none."""
        return self._channel.fileno() if self._channel else None

    def arm(self, queues: Sequence[str]) -> bool:
        """Start waiting; False if Redis can't be reached now. Then nothing is lost: the process polls every few seconds anyway."""
        now = time.monotonic()
        if self.armed or now < self._next_try or not queues:
            return self.armed
        try:
            if self._channel is None:
                self._channel = NonBlockingReader.of(self._connect())
            self._channel.send("BLPOP", *map(self._bell, queues), f"{self._wait:.3f}")
        except (RedisError, OSError):
            self.drop()
            return False
        self.armed = True
        self._silent_after = now + self._wait + _PATIENCE
        return True

    def receive(self) -> str | bool | None:
        """Return the queue that rang, None if the wait timed out, False if nothing came or the connection is broken."""
        if self._channel is None:
            return False
        try:
            replies = self._channel.receive()
        except (RedisError, OSError):
            self.drop()
            return False
        if not replies:
            return False
        self.armed = False
        reply = replies[-1]
        if isinstance(reply, Exception):
            self.drop()
            return False
        return None if reply is None else self._keys.name_of_wake(reply[0].decode())

    @property
    def next_at(self) -> float:
        """Monotonic time by which a wait under way must have a reply."""
        return self._silent_after if self.armed else inf

    def tick(self, now: float) -> None:
        """Close a connection whose reply is overdue."""
        if self.armed and now >= self._silent_after:
            self.drop()

    def drop(self) -> None:
        """Close the connection. The next attempt follows after one second at the earliest."""
        self.armed = False
        self._next_try = time.monotonic() + _RECONNECT_PAUSE
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def renew(self) -> None:
        """Close the connection so that the next `arm` may name other queues. A token that comes in this moment is lost."""
        self.drop()
        self._next_try = 0.0
