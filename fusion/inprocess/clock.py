"""The clock by which a manager waits."""

from __future__ import annotations

import threading
import time


class Clock:
    """Monotonic time, and waiting by it. A test may give a manager another one, whose time passes when the test says so."""

    def now(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait until somebody notifies the condition, which the caller has locked, or so many seconds are over; None = any time."""
        condition.wait(seconds)
