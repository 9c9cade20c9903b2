"""Logs which job blocks an event loop."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from math import inf

from fusion.executors import readings
from fusion.executors.concurrent_horse import ConcurrentHorse, CrowdRun

#: Seconds between two warnings, and most characters of a stack.
_PAUSE, _STACK = 10.0, 4000


class BlockedLoopLog:
    """Warns of a job that blocks the loop that it shares with others, with its stack. It limits how often it warns."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told_at = -inf
        self._untold = 0

    def found(self, horse: ConcurrentHorse, run: CrowdRun | None, frame: Mapping[bytes, bytes]) -> None:
        """Log that a horse reported a blocked loop."""
        now = time.monotonic()
        if now < self._told_at + _PAUSE:
            self._untold += 1
            return
        before = f" ({self._untold} more were not told)" if self._untold else ""
        self._told_at, self._untold = now, 0
        stack = frame.get(b"stack", b"").decode("utf-8", "replace")[-_STACK:]
        self._log.warning(
            "the event loop of a process with %d jobs stands still for %.1f s%s; it is blocked by %s. Await what takes long, or make the "
            "task a plain function, which gets a thread:\n%s",
            len(horse.runs),
            readings.standstill(frame),
            before,
            f"job {run.claimed.id}" if run else "something that is no job of these",
            "".join(c if c.isprintable() or c == "\n" else "?" for c in stack),
        )
