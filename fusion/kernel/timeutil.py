"""Times as Redis stores them (ISO-8601, UTC, microseconds, `Z`), and durations and instants as people write them."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone

from fusion.exceptions import OptionError
from fusion.kernel.defaults import FURTHEST as FURTHEST

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_AWARE = "datetime.now(timezone.utc) + timedelta(minutes=5), or datetime(2030, 1, 31, 9, tzinfo=ZoneInfo('Europe/Berlin'))"


def now() -> datetime:
    """Return the current time in UTC, aware."""
    return datetime.now(timezone.utc)


def to_iso(moment: datetime) -> str:
    """Return `2026-01-31T09:30:00.000000Z`. A naive datetime is an error: its zone is unknown."""
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone; use e.g. datetime.now(timezone.utc)")
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_iso(text: str | bytes | None) -> datetime | None:
    """Parse a stored time; the older form without `Z` counts as UTC too. None for an absent one, and for an invalid one of an old producer."""
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
    """Return seconds from `90`, `2.5`, `"90"`, `"90s"`, `"5m"`, `"1h"`, `"2d"` or a timedelta. ValueError for anything else."""
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
        raise ValueError(f"{value!r} is not a duration; use seconds, a timedelta, or a text like '90s', '5m', '1h', '2d'")
    return seconds


def to_unix(moment: date, name: str = "the time") -> float:
    """Return Unix seconds of the time at which something becomes due. A time in the past is no error: it is due now.

    TypeError if it is not a datetime; OptionError, for `name`, for a naive one, and for one over 1e9 s (31 years) ahead of this machine's
    clock.
    """
    if not isinstance(moment, datetime):
        raise TypeError(f"{name}: {moment!r} is not a datetime; use {_AWARE}")
    if moment.utcoffset() is None:
        raise OptionError(name, f"{moment!r} has no time zone; use {_AWARE}")
    seconds = moment.timestamp()
    if not seconds - now().timestamp() <= FURTHEST:
        raise OptionError(name, f"{moment} is over {FURTHEST:.0f} s (31 years) ahead; use a nearer time")
    return max(0.0, seconds)


def to_delay(value: float | str | timedelta, name: str = "the delay") -> float:
    """Return the seconds until something becomes due, as in `parse_seconds`. OptionError, for `name`, for anything else, a negative one, and
    one over 1e9 s."""
    try:
        seconds = parse_seconds(value)
    except ValueError as error:
        raise OptionError(name, str(error)) from None
    if not 0 <= seconds <= FURTHEST:
        raise OptionError(name, f"{value!r} must be from 0 to {FURTHEST:.0f} seconds (31 years)")
    return seconds


def parse_moment(text: str) -> datetime:
    """Parse a time as people type it: ISO 8601 with a zone, `2030-01-31T09:00+01:00` or `2030-01-31T08:00Z`. ValueError names the remedy."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time; use ISO 8601 with a zone, like 2030-01-31T09:00+01:00 or 2030-01-31T08:00Z"
        ) from None
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; add Z for UTC or an offset like +02:00: {moment.isoformat()}Z")
    return moment
