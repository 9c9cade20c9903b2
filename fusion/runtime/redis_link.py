"""A process's main connection to Redis: one bounded attempt at a time, with pauses between attempts."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from redis.exceptions import OutOfMemoryError, RedisError, ResponseError

from fusion.exceptions import SchemaMismatch
from fusion.runtime.backoff import Backoff
from fusion.store.client.classify import without_place
from fusion.store.client.connections import classify, one_line

T = TypeVar("T")
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


class RedisAway(Exception):
    """Redis did not answer this attempt. `RedisLink.retry_at`: when to try again."""


class CallRefused(Exception):
    """Redis answered that it can't run this one call: one of its keys has the wrong type. See `refusable`."""


class ServerFull(CallRefused):
    """Redis has no memory left and takes no new data."""


def refusable(call: Callable[[], T]) -> Callable[[], T]:
    """Wrap a call for `RedisLink.attempt` so that a refusal of it is not treated as an outage, which would stop everything else.

    The wrapped call raises CallRefused, or ServerFull, in place of redis-py's error.
    """

    def guarded() -> T:
        try:
            return call()
        except ResponseError as error:
            text = " ".join(without_place(str(error)).split())
            if isinstance(error, OutOfMemoryError):
                raise ServerFull(f"OOM {text.removeprefix('OOM ')}") from error
            if classify(error) != "bug":
                raise
            raise CallRefused(text) from error

    return guarded


class RedisLink:
    """Detects outages of Redis, and paces the attempts during one.

    - `attempt` runs one call; on a transient error it raises RedisAway and sets the time of the next try, with jitter;
    - an outage is logged when it begins, when it is clear that waiting won't help (or that the error is unexpected), and when it ends;
    - an error of permissions or set-up, or an unexpected error, is an outage too: jobs are under way, and an operator may fix it;
    - data that this process is too old for are an outage too: it only tries every few seconds to register again.
    """

    def __init__(self, log: logging.Logger, meanwhile: str = "running jobs go on") -> None:
        """`meanwhile`: words for the log about what continues without Redis."""
        self._log, self._meanwhile = log, meanwhile
        self._backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, jitter=True)
        #: Monotonic time at which Redis stopped answering; None while it answers.
        self.away_since: float | None = None
        self._told: set[str] = set()
        self._refused = False
        self._too_old = ""
        self._enter: Callable[[], object] | None = None
        self.retry_at = 0.0
        #: How many outages have begun. A call sent before an outage may never get a reply.
        self.outages = 0

    @property
    def outdated(self) -> bool:
        """True if this process is too old for the data; then it does not touch them."""
        return bool(self._too_old)

    @property
    def trouble(self) -> list[str]:
        """Return the reasons why Redis can't be used now, for a probe; empty if it can."""
        if self._too_old or self.away_since is None:
            return [self._too_old] * self.outdated
        return [f"Redis is away for {time.monotonic() - self.away_since:.0f} s"]

    def begin(self, enter: Callable[[], object], *, patient: bool = True) -> None:
        """Connect for the first time: `enter` puts this process into its list. redis-py's errors pass through.

        If this process is too old for the data and `patient`, `enter` is called again before each later attempt. If not `patient`:
        SchemaMismatch.
        """
        self._enter = enter
        try:
            enter()
        except SchemaMismatch as error:
            if not patient:
                raise
            self._wait_for_data(error)

    def open(self, now: float) -> bool:
        """Say whether an attempt is due."""
        return now >= self.retry_at

    def attempt(self, call: Callable[[], T], *, look: bool = False, since: int | None = None) -> T:
        """Run `call`. RedisAway if Redis can't be reached or refuses. CallRefused of a `refusable` call passes through.

        `look`: the call may write nothing. Then its success does not end an outage in which Redis answers but refuses writes, as a replica
        does.
        `since`: the value of `outages` when the call was sent. If an outage has ended since, a missing reply does not mean a new one.
        """
        try:
            if self._too_old and self._enter is not None:
                self._enter()
            answer = call()
        except SchemaMismatch as error:
            self._wait_for_data(error)
            raise RedisAway from error
        except (RedisError, OSError) as error:
            if since in (None, self.outages) or isinstance(error, ResponseError):
                self._missed(error)
            raise RedisAway from error
        except CallRefused:
            if self.away_since is not None:
                self._answered(self.away_since, look)
            raise
        if self.away_since is not None:
            self._answered(self.away_since, look)
        return answer

    def _answered(self, since: float, look: bool) -> None:
        """End the outage that began at that time, unless this answer shows too little."""
        if look and self._refused:
            return
        what = "the data are this process's again" if self._too_old else "Redis is back"
        self._log.warning("%s after %.1f s", what, time.monotonic() - since)
        self._too_old = ""
        self.away_since, self.retry_at = None, 0.0
        self._backoff.reset()
        self._told.clear()

    def _wait_for_data(self, error: SchemaMismatch) -> None:
        now = time.monotonic()
        self._begin_outage(now)
        self._refused = False
        if str(error) != self._too_old:
            self._too_old = str(error)
            self._log.error("too old for what is in Redis, nothing is taken or changed until that is mended: %s", error)
        self.retry_at = now + _LONGEST_PAUSE * random.uniform(0.5, 1.0)

    def _begin_outage(self, now: float) -> bool:
        if self.away_since is not None:
            return False
        self.away_since = now
        self.outages += 1
        return True

    def _missed(self, error: Exception) -> None:
        now = time.monotonic()
        kind = classify(error)
        if self._begin_outage(now):
            self._log.error("Redis is away, %s: %s", self._meanwhile, one_line(error))
        elif kind != "transient" and kind not in self._told:
            self._log.error("still so, and a person is needed: %s", one_line(error))
        self._told.add(kind)
        self._refused = isinstance(error, ResponseError)
        self.retry_at = now + self._backoff.next()
