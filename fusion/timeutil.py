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
    """Read a stored time; the older form without `Z` counts as UTC too. None for an absent one, and for garbage an old producer wrote."""
    if not text:
        return None
    try:
        value = text.decode() if isinstance(text, bytes) else text
        moment = datetime.fromisoformat(value.removesuffix("Z"))
    except ValueError:
        return None
    return moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment.astimezone(timezone.utc)


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_seconds(value: float | str | timedelta) -> float:
    """Seconds from `90`, `2.5`, `"90"`, `"90s"`, `"5m"`, `"1h"`, `"2d"` or a timedelta. ValueError for anything else."""
    seconds: float | None = None
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = value
    elif isinstance(value, str) and value:
        unit = _UNITS.get(value[-1].lower())
        try:
            seconds = float(value) if unit is None else float(value[:-1]) * unit
        except ValueError:
            pass
    if seconds is None or not abs(seconds) < float("inf"):  # not "nan" either, which is less than nothing
        raise ValueError(f"{value!r} is no duration; use seconds, a timedelta, or a text like '90s', '5m', '1h', '2d'")
    return seconds
