"""Which doorbells the worker waits at, and what it does with a token it has no use for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from redis import Redis

from fusion.runtime.doorbell import Doorbell
from fusion.runtime.loop import Loop
from fusion.runtime.redis_link import RedisAway, RedisLink
from fusion.store.write.broker import Broker
from fusion.worker.admission import ANY


class Doorbells:
    """Two waits: for any job while a slot takes any, for HIGH jobs while a slot is reserved for them.

    A worker whose free slots are all reserved must not wait with the others: it would swallow tokens for jobs that it does not take, or
    throw one to and fro with its like. A token that comes too late, when no slot fits any more, is passed on.
    """

    def __init__(
        self,
        connect: Callable[[], Redis],
        broker: Broker,
        link: RedisLink,
        loop: Loop,
        wait: float,
        floors: Callable[[], list[int]],
        wake: Callable[[], None],
    ) -> None:
        self._broker, self._link, self._loop, self._floors, self._wake = broker, link, loop, floors, wake
        self._any = Doorbell(connect, broker.keys, wait)
        self._high = Doorbell(connect, broker.keys, wait, high=True)

    def check(self, now: float) -> None:
        """Give up connections that should have answered."""
        self._any.tick(now)
        self._high.tick(now)

    def arm(self, queues: Sequence[str]) -> None:
        """Wait wherever a free slot may find a job."""
        floors = self._floors()
        if ANY in floors:
            self._any.arm(queues)
        if any(floors):
            self._high.arm(queues)

    def renew(self) -> None:
        """There are other bells to wait at."""
        self._any.renew()
        self._high.renew()

    def follow(self) -> None:
        """Keep the loop in step with the connections."""
        self._loop.follow("doorbell", self._any.fileno(), self._on_any)
        self._loop.follow("high doorbell", self._high.fileno(), self._on_high)

    def close(self) -> None:
        self._any.drop()
        self._high.drop()

    def _on_any(self) -> None:
        self._answer(self._any.receive(), ANY in self._floors())

    def _on_high(self) -> None:
        self._answer(self._high.receive(), bool(self._floors()))

    def _answer(self, rang: str | bool | None, fits: bool) -> None:
        if rang is False:
            return
        if self._floors():
            self._wake()
        if not fits and isinstance(rang, str) and self._link.open(time.monotonic()):
            try:
                self._link.attempt(lambda: self._broker.ring(rang), look=True)  # for a worker that has a free slot
            except RedisAway:
                pass
