"""Figures and times as lists show them, with a colour where they need a person: what is old, and what should not be there at all."""

from __future__ import annotations

from fusion.cli.context import seconds
from fusion.cli.output import styled
from fusion.views.base import age as age

#: Seconds that the oldest job may wait before that is marked, and marked as worse.
OLD, VERY_OLD = 300.0, 1800.0


def aged(waited: float | None) -> str:
    """How long the oldest job has waited, marked if that is long."""
    if waited is None:
        return "-"
    return styled(seconds(waited), "red" if waited >= VERY_OLD else "yellow" if waited >= OLD else None)


def rate(value: float | None) -> str:
    """A number of jobs per minute."""
    return "-" if value is None else f"{value:.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def alarming(value: float | None, text: str | None = None) -> str:
    """A figure that is to be 0: marked if it is not."""
    return styled(rate(value) if text is None else text, "red" if value else None)
