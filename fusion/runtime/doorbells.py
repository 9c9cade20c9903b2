"""Waiting for work without polling: blocked BLPOPs on the doorbells of a process's queues. It passes on a token that it can't use."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from math import inf

from redis import Redis
from redis.exceptions import RedisError

from fusion.kernel.failpoints import failpoint
from fusion.runtime.context import ProcessContext
from fusion.runtime.free_slots import ANY
from fusion.runtime.redis_link import RedisAway
from fusion.runtime.timers import Timer, Timers
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
        #: The connection; None while there is none.
        self.channel: NonBlockingReader | None = None
        self._next_try = 0.0
        #: Monotonic time by which a wait under way must have a reply.
        self.next_at = inf
        self.armed = False

    def fileno(self) -> int | None:
        """The connection's descriptor; None while there is none."""
        return self.channel.fileno() if self.channel else None

    def arm(self, queues: Sequence[str]) -> bool:
        """Start waiting; False if Redis can't be reached now. Then nothing is lost: the process polls every few seconds anyway."""
        now = time.monotonic()
        if self.armed or now < self._next_try or not queues:
            return self.armed
        try:
            if self.channel is None:
                self.channel = NonBlockingReader.of(self._connect())
            self.channel.send("BLPOP", *map(self._bell, queues), f"{self._wait:.3f}")
        except (RedisError, OSError):
            self.drop()
            return False
        self.armed = True
        self.next_at = now + self._wait + _PATIENCE
        return True

    def receive(self) -> str | bool | None:
        """Return the queue that rang, None if the wait timed out, False if nothing came or the connection is broken."""
        if self.channel is None:
            return False
        try:
            replies = self.channel.receive()
        except (RedisError, OSError):
            self.drop()
            return False
        if not replies:
            return False
        self.armed, self.next_at = False, inf
        reply = replies[-1]
        if isinstance(reply, Exception):
            self.drop()
            return False
        return None if reply is None else self._keys.name_of_wake(reply[0].decode())

    def tick(self, now: float) -> None:
        """Close a connection whose reply is overdue."""
        if now >= self.next_at:
            self.drop()

    def drop(self) -> None:
        """Close the connection. The next attempt follows after one second at the earliest."""
        self.armed, self.next_at = False, inf
        self._next_try = time.monotonic() + _RECONNECT_PAUSE
        if self.channel is not None:
            self.channel.close()
            self.channel = None

    def renew(self) -> None:
        """Close the connection so that the next `arm` may name other queues. A token that comes in this moment is lost."""
        self.drop()
        self._next_try = 0.0


class Doorbells:
    """Two waits: for any job while a slot takes any, for HIGH jobs while a slot is reserved for them.

    - a process whose free slots are all reserved must not wait for any job: it would swallow tokens for jobs that it can't take, or pass a
      token back and forth with another such process;
    - a token that comes when no slot fits any more is passed on;
    - `floors` below are the lowest priorities of the free slots.
    """

    def __init__(self, process: ProcessContext, timer: Timer) -> None:
        """`timer`: becomes due when a token comes that `answer` must handle. A wait that ran out only begins anew."""
        self._process, self._timer = process, timer
        wait, keys = process.settings.idle_wait, process.broker.keys
        self._any = Doorbell(process.connect_blocking, keys, wait)
        self._high = Doorbell(process.connect_blocking, keys, wait, high=True)
        #: The connections that the loop watches.
        self._followed: tuple[object, object] = (None, None)
        #: Tokens that `answer` must handle: whether it was the bell for any job, and the queue that rang.
        self.rung: list[tuple[bool, str]] = []

    def schedule(self, timers: Timers) -> None:
        """Add the timers that close connections whose replies are overdue."""
        timers.when(self._any, self._any.tick)
        timers.when(self._high, self._high.tick)

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
        channels = self._any.channel, self._high.channel
        if channels == self._followed:
            return
        self._followed = channels
        self._process.loop.follow("doorbell", self._any.fileno(), self._on_any)
        self._process.loop.follow("high doorbell", self._high.fileno(), self._on_high)

    def answer(self, floors: Sequence[int]) -> bool:
        """Handle the tokens: pass on those that fit no slot. True if there may be a job for a free slot."""
        rung, self.rung = self.rung, []
        for for_any, rang in rung:
            fits = ANY in floors if for_any else bool(floors)
            if not fits:
                self._pass_on(rang)
        return bool(rung and floors)

    def close(self) -> None:
        """End both waits."""
        self._any.drop()
        self._high.drop()

    def _on_any(self) -> None:
        self._note(True, self._any.receive())

    def _on_high(self) -> None:
        self._note(False, self._high.receive())

    def _note(self, for_any: bool, rang: str | bool | None) -> None:
        if isinstance(rang, str):
            failpoint("doorbell.token")
            self.rung.append((for_any, rang))
            self._timer.next_at = 0.0

    def _pass_on(self, queue: str) -> None:
        if self._process.link.open(time.monotonic()):
            try:
                self._process.link.attempt(partial(self._process.broker.ring, queue), look=True)  # for one that has a free slot
            except RedisAway:
                pass
