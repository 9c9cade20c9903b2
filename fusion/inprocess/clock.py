"""The clock by which a manager waits."""

from __future__ import annotations

import threading
import time


class Clock:
    """Monotonic time, and waits that use it. A test may give a manager another clock and control its time."""

    def now(self) -> float:
        """Return the seconds since a fixed moment."""
        return time.monotonic()

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait until the condition is notified, or for `seconds`; None = without a limit. The caller must hold the condition's lock."""
        condition.wait(seconds)
