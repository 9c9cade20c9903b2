"""Times and ages as JSON shows them."""

from __future__ import annotations

from datetime import datetime

from fusion.kernel.timeutil import to_iso


def age(at: datetime, moment: datetime | None) -> float | None:
    """Seconds from a moment until `at`; never less than none: two clocks, the server's and ours, never agree to the millisecond."""
    return None if moment is None else max(0.0, (at - moment).total_seconds())


def iso(moment: datetime | None) -> str | None:
    """A time as JSON shows it."""
    return None if moment is None else to_iso(moment)
