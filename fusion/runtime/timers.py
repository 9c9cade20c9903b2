"""All times that a process waits for, in one place: its loop sleeps until the first of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import Protocol

from fusion.runtime.redis_link import RedisAway, RedisLink

#: Called with the monotonic time of the round.
Tick = Callable[[float], object]


class Timed(Protocol):
    """A part that knows when it has something to do."""

    @property
    def next_at(self) -> float:
        """Monotonic time; `inf` while there is nothing to wait for."""
        ...


class Timer:
    """One time that may be moved: `inf` disarms it."""

    __slots__ = ("next_at",)

    def __init__(self, next_at: float = inf) -> None:
        self.next_at = next_at


class Timers:
    """Runs the timers that are due, in the order in which they were added, and computes how long the loop may sleep.

    - `every` repeats a function, `at` runs it once, `when` runs it each time a part's `next_at` has come;
    - a timer that needs Redis waits until `link` allows another try. The first that finds Redis away ends the round for all of them; they
      are due again later.
    """

    def __init__(self, link: RedisLink | None = None) -> None:
        self._link = link
        self._entries: list[tuple[Timed, Tick, bool]] = []
        self._wakers: list[Timed] = []

    def when(self, part: Timed, tick: Tick, *, redis: bool = False) -> None:
        """Call `tick` whenever `part.next_at` has come. Unless `tick` moves that time, it is called again in the next round."""
        self._entries.append((part, tick, redis))

    def wake(self, part: Timed) -> None:
        """End the loop's sleep when `part.next_at` has come. The process itself runs the part in each round."""
        self._wakers.append(part)

    def every(self, seconds: float, tick: Tick, *, redis: bool = False) -> Timer:
        """Call `tick` now, and again `seconds` after the begin of each call."""
        return self._add(0.0, seconds, tick, redis)

    def at(self, when: float, tick: Tick, *, redis: bool = False) -> Timer:
        """Call `tick` once at that monotonic time; move the timer's `next_at` to have it called again."""
        return self._add(when, inf, tick, redis)

    def _add(self, first: float, pause: float, tick: Tick, redis: bool) -> Timer:
        timer = Timer(first)

        def run(now: float) -> None:
            timer.next_at = now + pause
            try:
                tick(now)
            except RedisAway:
                timer.next_at = now
                raise

        self.when(timer, run, redis=redis)
        return timer

    def tick(self, now: float) -> None:
        """Run the timers that are due. Errors other than RedisAway pass through."""
        link = self._link
        for part, tick, redis in self._entries:
            if now < part.next_at or (redis and link is not None and now < link.retry_at):
                continue
            try:
                tick(now)
            except RedisAway:
                continue  # the link's next try is in the future: all others that need Redis wait for it

    @property
    def next_at(self) -> float:
        """The first time at which something is due and can be done; `inf` if nothing ever is."""
        retry_at = self._link.retry_at if self._link is not None else 0.0
        soonest = inf
        for waker in self._wakers:
            if (at := waker.next_at) < soonest:
                soonest = at
        for part, _, redis in self._entries:
            at = part.next_at
            if redis and at < retry_at:
                at = retry_at
            if at < soonest:
                soonest = at
        return soonest

    def pause(self) -> float:
        """Seconds that the loop may sleep."""
        return max(0.0, self.next_at - time.monotonic())
