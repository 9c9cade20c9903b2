"""Numbers and times in lists, coloured if they need a person's attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusion.cli.context import seconds
from fusion.cli.output import styled

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


def _moving(name: str, told: Callable[[float | None], str]) -> Callable[[Any], str]:
    return lambda queue: told(getattr(queue.per_minute, name, None))


#: Cells of the tables of queues. Jobs in a LIST queue's inbox get the default priority when a worker takes them over.
QUEUE: dict[str, Callable[[Any], str]] = {
    "by_priority.moderate": lambda queue: str(queue.by_priority.moderate + queue.inbox),
    "oldest_age": lambda queue: aged(queue.oldest_age),
    "active_count": lambda queue: f"{queue.active_count}" + (f"/{most}" if (most := queue.max_concurrent) is not None else ""),
    "per_minute.came": _moving("came", rate),
    "per_minute.went": _moving("went", rate),
    "per_minute.failed": _moving("failed", alarming),
}
