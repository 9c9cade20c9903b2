"""Cron expressions on a wall clock, and the wall clocks of time zones with their changes. Times are whole seconds.

A *wall time* is the time that a local clock shows, counted like Unix seconds but from its own 1970-01-01T00:00. The ticks of a plan are
computed for one UTC day at a time, in stretches during which the zone keeps one offset.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from calendar import monthrange
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from croniter import CroniterError, croniter

DAY = 86_400
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_EPOCH_DAY = EPOCH.toordinal()
#: The first and last time of plans, in Unix seconds: datetime supports the years 1 to 9999, less up to a day for an offset.
FIRST, LAST = ((date(year, 1, 1).toordinal() - _EPOCH_DAY) * DAY for year in (2, 9999))

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = (
    ("minute", "0-59"),
    ("hour", "0-23"),
    ("day of the month", "1-31, or L for the last"),
    ("month", "1-12 or JAN-DEC"),
    ("day of the week", "0-7 or SUN-SAT, MON#2 for the second, L5 for the last Friday"),
)
_MONTH_LENGTHS = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
#: Zone names that differ between machines: the machine's own zone, and clocks that count leap seconds.
_NOT_PORTABLE = ("localtime", "posixrules", "posix/", "right/")

_Values = frozenset[int | str]


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed cron expression. `times`: seconds of a day, ascending. A day field is None if it allows every day."""

    times: tuple[int, ...]
    days: _Values | None
    months: _Values
    weekdays: _Values | None
    nth: Mapping[int, _Values]
    fixed: bool

    def on(self, day: date) -> bool:
        """Return True if it runs on this date. If both day fields are given, either is enough, as in crontab(5)."""
        if day.month not in self.months:
            return False
        if self.days is None or self.weekdays is None:
            return self._on_day(day) and self._on_weekday(day)
        return self._on_day(day) or self._on_weekday(day)

    def _on_day(self, day: date) -> bool:
        return self.days is None or day.day in self.days or ("l" in self.days and _is_last(day, 1))

    def _on_weekday(self, day: date) -> bool:
        weekday = day.isoweekday() % 7
        if self.weekdays is None or weekday not in self.weekdays:
            return self.weekdays is None
        nth = self.nth.get(weekday)
        return nth is None or (day.day + 6) // 7 in nth or ("l" in nth and _is_last(day, 7))

    def next_day(self, day: int, step: int = 1) -> int | None:
        """Return the first day from `day` (days since 1970) on which it runs, forwards or (`step=-1`) backwards; None if there is none."""
        while FIRST <= day * DAY < LAST:
            found = date.fromordinal(day + _EPOCH_DAY)
            if found.month not in self.months:
                # a whole month at once: 29 February may be eight years away
                day += monthrange(found.year, found.month)[1] - found.day + 1 if step > 0 else -found.day
            elif self.on(found):
                return day
            else:
                day += step
        return None

    def walls(self, low: int, high: int) -> Iterator[int]:
        """Yield the wall times of the expression from `low` to before `high`, ascending."""
        if low >= high:
            return
        for day in range(low // DAY, (high - 1) // DAY + 1):
            if self.on(date.fromordinal(day + _EPOCH_DAY)):
                since, until = (bisect_left(self.times, edge - day * DAY) for edge in (low, high))
                yield from (day * DAY + time for time in self.times[since:until])


def _is_last(day: date, within: int) -> bool:
    return day.day + within > monthrange(day.year, day.month)[1]


@lru_cache(maxsize=1024)
def parse(text: str) -> Expression:
    """Parse a cron expression. ValueError if it is invalid, if it never runs, or if two schedulers could read it differently."""
    fields = ALIASES.get(text, text).split()
    if text.startswith("@") and text not in ALIASES:
        more = "; to run at a start, enqueue the job where the service starts" if text == "@reboot" else ""
        raise ValueError(f"{text!r} is not an alias that cron entries may use; use one of {', '.join(ALIASES)}{more}")
    if len(fields) != 5:
        more = "; for seconds use every()" if len(fields) in (6, 7) else ""
        names = ", ".join(name for name, _ in _FIELDS)
        raise ValueError(f"{text!r} has {len(fields)} fields; a cron expression has five: {names}{more}")
    for i, field in enumerate(fields):
        _check(text, i, field)
    try:
        (minutes, hours, days, months, weekdays), nth = croniter.expand(" ".join(fields))
    except CroniterError as error:
        raise ValueError(f"{text!r} is not a cron expression: {error}") from None
    parsed = Expression(
        times=tuple(h * 3600 + m * 60 for h in _all(hours, 24) for m in _all(minutes, 60)),
        days=None if "*" in days else frozenset(days),
        months=frozenset(range(1, 13) if "*" in months else months),
        weekdays=None if "*" in weekdays else frozenset(weekdays),
        nth={int(weekday): frozenset(which) for weekday, which in nth.items()},
        fixed=not fields[0].startswith("*") and not fields[1].startswith("*"),
    )
    if parsed.weekdays is None and parsed.days is not None and "l" not in parsed.days:
        longest = max(_MONTH_LENGTHS[int(month)] for month in parsed.months)
        if min(int(day) for day in parsed.days) > longest:
            raise ValueError(
                f"{text!r} never comes: no such month has more than {longest} days; use L for the last day of a month"
            )
    return parsed


def _check(text: str, i: int, field: str) -> None:
    """Check one field alone, so that the error names it."""
    name, values = _FIELDS[i]
    if field[0] in "hHrR":
        raise ValueError(f"{text!r}: {field!r} means another {name} to each scheduler; name the {name}")
    if i == 2 and "w" in field.lower():
        raise ValueError(f"{text!r}: W (the nearest working day) is not supported in {field!r}; name the days")
    if equal := re.search(r"\b(\w+)-\1\b", field, re.IGNORECASE):
        raise ValueError(f"{text!r}: {equal[0]!r} is one {name} to some and every {name} to others; use {equal[1]} or *")
    try:
        croniter.expand(" ".join(field if other == i else "*" for other in range(5)))
    except CroniterError:
        raise ValueError(f"{text!r}: {field!r} is not a valid {name}; use {values}, lists, ranges and steps") from None


def _all(values: Sequence[int | str], count: int) -> list[int]:
    return list(range(count)) if "*" in values else sorted(int(value) for value in values)


@lru_cache(maxsize=256)
def zone(name: str) -> ZoneInfo:
    """Return the zone of an IANA name; ValueError if this machine has none of that name."""
    if not name or name.startswith(_NOT_PORTABLE):
        raise ValueError(f"timezone={name!r}: use an IANA name such as 'Europe/Berlin' or 'UTC'")
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # not found; not a name; a directory such as "Europe"
        raise ValueError(
            f"timezone={name!r} is not known here; use an IANA name such as 'Europe/Berlin', and where the system"
            " has no zone database, pip install tzdata"
        ) from None


def at(moment: int, name: str) -> datetime:
    """Return the datetime of an instant (Unix seconds) in a zone."""
    return (EPOCH + timedelta(seconds=moment)).astimezone(zone(name))


class Change(NamedTuple):
    """A clock change: at `at` the offset from UTC changes from `before` to `after`."""

    at: int
    before: int
    after: int


@lru_cache(maxsize=4096)
def change_on(name: str, day: int) -> Change | None:
    """Return the clock change of a zone on a UTC day. Since 1970 no zone had two within three days; of two, only one would be found."""
    low, high = day * DAY - 1, (day + 1) * DAY - 1
    before, after = _offset(name, low), _offset(name, high)
    if before == after:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _offset(name, middle) == before else (low, middle)
    return Change(high, before, after)


def _offset(name: str, moment: int) -> int:
    return int((at(moment, name).utcoffset() or timedelta()).total_seconds())


class Stretch(NamedTuple):
    """Instants with one offset. `shown`: all earlier wall times were shown, or skipped, before this stretch."""

    start: int
    end: int
    offset: int
    shown: int


def stretches(name: str, day: int) -> list[Stretch]:
    """Return the stretches of a UTC day: one, or two around its clock change."""
    start, end = day * DAY, (day + 1) * DAY
    offset = _offset(name, start - 1)
    shown = start + offset
    if yesterday := change_on(name, day - 1):  # after a change back late on that day, the clock may repeat times of it
        shown = max(shown, yesterday.at + yesterday.before)
    if not (change := change_on(name, day)):
        return [Stretch(start, end, offset, shown)]
    return [
        Stretch(start, change.at, change.before, shown),
        Stretch(change.at, end, change.after, change.at + change.before),
    ]


def skipped(expression: str, name: str, tick: int) -> list[int]:
    """Return the wall times of a fixed entry that a clock change at `tick` skipped."""
    parsed = parse(expression)
    jumps = (s for s in stretches(name, tick // DAY) if parsed.fixed and s.start == tick)
    return [wall for s in jumps for wall in parsed.walls(s.shown, s.start + s.offset)]


@lru_cache(maxsize=128)
def ticks_of(expression: str, name: str, day: int) -> tuple[int, ...]:
    """Return the ticks of a cron expression on a UTC day, ascending."""
    parsed = parse(expression)
    found: list[int] = []
    for start, end, offset, shown in stretches(name, day):
        low, high = start + offset, end + offset
        if parsed.fixed:
            if any(True for _ in parsed.walls(shown, low)):
                found.append(start)
            low = max(low, shown)
        found += [wall - offset for wall in parsed.walls(low, high)]
    return tuple(dict.fromkeys(found))
