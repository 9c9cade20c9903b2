"""The verdict for a public probe: one word, computed at most every few seconds, however often it is called."""

from __future__ import annotations

import threading
import time
from typing import Literal

from redis import Redis

from fusion.doctor.look import Look
from fusion.doctor.verdict import Word, verdict
from fusion.settings import get_settings

#: Seconds for which a verdict is cached.
KEPT = 5.0


class KeptVerdict:
    """The cached verdict: `healthy`, `strained` or `unhealthy`. It has no names in it, because the caller has no token."""

    def __init__(self, connection: Redis) -> None:
        self._connection, self._lock = connection, threading.Lock()
        self._word: Word | Literal["unknown"] = "unknown"
        self._until = 0.0

    def word(self) -> Word | Literal["unknown"]:
        """Return a verdict that is a few seconds old at most; an older one while another thread computes the next. Raises errors of Redis."""
        if time.monotonic() < self._until or not self._lock.acquire(blocking=False):
            return self._word
        try:
            self._word = verdict(Look(self._connection, get_settings())).word
            self._until = time.monotonic() + KEPT
        finally:
            self._lock.release()
        return self._word
