"""A worker's main line to Redis: one bounded attempt at a time, and the worker's own patience between attempts."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from redis.exceptions import RedisError

from fusion.store.connections import classify, one_line

T = TypeVar("T")
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


class RedisAway(Exception):
    """Redis did not answer this attempt; `RedisLink.retry_at` says when to try again."""


class RedisLink:
    """Tells an outage from an answer.

    - `attempt` runs one call; on a transient error it raises RedisAway and sets the time of the next try, with jitter;
    - an outage is logged once when it begins, once when it turns out that waiting won't help, and once when it ends;
    - an error of rights or set-up, or one nobody foresaw, is an outage too: jobs are under way, and somebody may mend it.
    """

    def __init__(self, log: logging.Logger, meanwhile: str = "jobs under way go on") -> None:
        """`meanwhile`: what goes on without Redis, for the log."""
        self._log, self._meanwhile = log, meanwhile
        self._pause = _FIRST_PAUSE
        self._away_since: float | None = None
        self._kind = ""
        self.retry_at = 0.0

    @property
    def away_since(self) -> float | None:
        """Monotonic time at which Redis stopped answering; None while it answers."""
        return self._away_since

    def open(self, now: float) -> bool:
        """Whether an attempt is due."""
        return now >= self.retry_at

    def attempt(self, call: Callable[[], T]) -> T:
        """Run `call`. RedisAway if Redis can't be reached or refuses."""
        try:
            answer = call()
        except (RedisError, OSError) as error:
            self._missed(error)
            raise RedisAway from error
        if self._away_since is not None:
            self._log.warning("Redis is back after %.1f s", time.monotonic() - self._away_since)
            self._away_since, self._pause, self.retry_at = None, _FIRST_PAUSE, 0.0
        return answer

    def _missed(self, error: Exception) -> None:
        now = time.monotonic()
        kind = classify(error)
        if self._away_since is None:
            self._away_since = now
            self._log.error("Redis is away, %s: %s", self._meanwhile, one_line(error))
        elif kind not in ("transient", self._kind):
            self._log.error("still so, and a person is needed: %s", one_line(error))
        self._kind = kind
        self.retry_at = now + self._pause * random.uniform(0.5, 1.0)
        self._pause = min(_LONGEST_PAUSE, self._pause * 2)
