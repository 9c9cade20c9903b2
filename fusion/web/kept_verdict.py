"""The verdict for a probe that anybody may ask, as often as they like: made every few seconds at most, and told in a word."""

from __future__ import annotations

import threading
import time
from typing import Literal

from redis import Redis

from fusion.doctor.look import Look
from fusion.doctor.verdict import Word, verdict
from fusion.settings import get_settings

#: Seconds for which a verdict is told.
KEPT = 5.0


class KeptVerdict:
    """`healthy`, `strained`, `unhealthy`, no names: the caller has no token."""

    def __init__(self, connection: Redis) -> None:
        self._connection, self._lock = connection, threading.Lock()
        self._word: Word | Literal["unknown"] = "unknown"
        self._until = 0.0

    def word(self) -> Word | Literal["unknown"]:
        """The verdict of now or of a few seconds ago; the last one while another thread makes it. Raises what Redis raises."""
        if time.monotonic() < self._until or not self._lock.acquire(blocking=False):
            return self._word
        try:
            self._word = verdict(Look(self._connection, get_settings())).word
            self._until = time.monotonic() + KEPT
        finally:
            self._lock.release()
        return self._word
