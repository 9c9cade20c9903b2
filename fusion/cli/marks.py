"""Numbers and times in lists, coloured if they need a person's attention."""

from __future__ import annotations

from fusion.cli.context import seconds
from fusion.cli.output import styled
from fusion.views.base import age as age

#: Seconds of the oldest job's wait from which it is yellow, and from which it is red.
OLD, VERY_OLD = 300.0, 1800.0


def aged(waited: float | None) -> str:
    """Return how long the oldest job has waited, coloured if that is long."""
    if waited is None:
        return "-"
    return styled(seconds(waited), "red" if waited >= VERY_OLD else "yellow" if waited >= OLD else None)


def rate(value: float | None) -> str:
    """Return a number of jobs per minute as text."""
    return "-" if value is None else f"{value:.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def alarming(value: float | None, text: str | None = None) -> str:
    """Return a number that should be 0, coloured if it is not."""
    return styled(rate(value) if text is None else text, "red" if value else None)
