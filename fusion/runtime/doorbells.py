"""The doorbells at which one process waits. It passes on a token that it can't use."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from fusion.runtime.context import ProcessContext
from fusion.runtime.doorbell import Doorbell
from fusion.runtime.free_slots import ANY
from fusion.runtime.redis_link import RedisAway


class Doorbells:
    """Two waits: for any job while a slot takes any, for HIGH jobs while a slot is reserved for them.

    - a process whose free slots are all reserved must not wait for any job: it would swallow tokens for jobs that it can't take, or pass a
      token back and forth with another such process;
    - a token that comes when no slot fits any more is passed on;
    - `floors` below are the lowest priorities of the free slots.
    """

    def __init__(self, process: ProcessContext) -> None:
        self._process = process
        wait, keys = process.settings.idle_wait, process.broker.keys
        self._any = Doorbell(process.connect_blocking, keys, wait)
        self._high = Doorbell(process.connect_blocking, keys, wait, high=True)
        #: Replies not handled yet: whether it was the bell for any job, and the queue that rang.
        self._rung: list[tuple[bool, str | bool | None]] = []

    @property
    def rung(self) -> bool:
        """True if a reply came that `answer` must handle."""
        return bool(self._rung)

    @property
    def next_at(self) -> float:
        """Monotonic time by which a wait under way must have a reply."""
        return min(self._any.next_at, self._high.next_at)

    def tick(self, now: float) -> None:
        """Close connections whose replies are overdue."""
        self._any.tick(now)
        self._high.tick(now)

    def arm(self, queues: Sequence[str], floors: Sequence[int]) -> None:
        """Wait at each doorbell that may bring a job for a free slot."""
        if ANY in floors:
            self._any.arm(queues)
        if any(floors):
            self._high.arm(queues)

    def renew(self) -> None:
        """Drop the waits under way, as the queues to wait for have changed."""
        self._any.renew()
        self._high.renew()

    def follow(self) -> None:
        """Keep the loop in step with the connections."""
        self._process.loop.follow("doorbell", self._any.fileno(), self._on_any)
        self._process.loop.follow("high doorbell", self._high.fileno(), self._on_high)

    def answer(self, floors: Sequence[int]) -> bool:
        """Handle the replies: pass on tokens that fit no slot. True if there may be a job for a free slot."""
        rung, self._rung = self._rung, []
        for for_any, rang in rung:
            fits = ANY in floors if for_any else bool(floors)
            if not fits and isinstance(rang, str):
                self._pass_on(rang)
        return bool(rung and floors)

    def close(self) -> None:
        """End both waits."""
        self._any.drop()
        self._high.drop()

    def _on_any(self) -> None:
        if (rang := self._any.receive()) is not False:
            self._rung.append((True, rang))

    def _on_high(self) -> None:
        if (rang := self._high.receive()) is not False:
            self._rung.append((False, rang))

    def _pass_on(self, queue: str) -> None:
        if self._process.link.open(time.monotonic()):
            try:
                self._process.link.attempt(partial(self._process.broker.ring, queue), look=True)  # for one that has a free slot
            except RedisAway:
                pass
