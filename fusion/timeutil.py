"""Times as Redis holds them: ISO-8601, UTC, microseconds and a `Z`."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone


def now() -> datetime:
    return datetime.now(timezone.utc)


def to_iso(moment: datetime) -> str:
    """`2026-01-31T09:30:00.000000Z`. A naive datetime is an error: nobody can know which zone it meant."""
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone; use e.g. datetime.now(timezone.utc)")
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_iso(text: str | bytes | None) -> datetime | None:
    """Read a stored time; the older form without `Z` counts as UTC too. None for an absent or empty one."""
    if not text:
        return None
    value = text.decode() if isinstance(text, bytes) else text
    moment = datetime.fromisoformat(value.removesuffix("Z"))
    return moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment.astimezone(timezone.utc)


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_seconds(value: float | str | timedelta) -> float:
    """Seconds from `90`, `2.5`, `"90"`, `"90s"`, `"5m"`, `"1h"`, `"2d"` or a timedelta. ValueError for anything else."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value and abs(value) != float("inf"):
        return value
    if isinstance(value, str) and value:
        unit = _UNITS.get(value[-1].lower())
        try:
            return float(value) if unit is None else float(value[:-1]) * unit
        except ValueError:
            pass
    raise ValueError(f"{value!r} is no duration; use seconds, a timedelta, or a text like '90s', '5m', '1h', '2d'")
