"""The ticks of a recurring job: pure arithmetic, no clock and no Redis.

Clock changes, of every zone and every size, by the distinction of Debian's cron(8), after Vixie cron:

- An entry whose minute or hour field starts with `*` (`*/15 * * * *`, `0 * * * *`, `*/5 2 * * *`) is a *wildcard* entry. It runs
  at every instant at which the clock shows one of its times: an hour that is skipped has none, an hour that comes twice has them twice.
- Any other entry (`30 2 * * *`, `0,30 1-3 * * *`) is *fixed*. Each of its times runs once, at the first instant at which the clock
  shows it or has jumped over it: a skipped time right after the jump, a time that comes twice the first time.
- Times that fall on one instant make one tick: of several times skipped by one jump, or skipped to a time that is due itself, one runs.
- An interval ignores clock changes. Its ticks are a whole number of intervals after `start`, or after 1970-01-01T00:00:00Z, so that no
  restart or deployment shifts them.

(Debian's cron treats changes of three hours and more as corrections of the clock; here they follow the same rule.)
"""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from fusion.cron import clock, steps
from fusion.kernel.timeutil import parse_seconds

#: The highest number of ticks that `between` counts.
COUNTED = 1000
_LONGEST = 10**9
_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Plan:
    """The ticks of a recurring task: a cron expression in a time zone, or an interval. Made by `Plan.cron` and `Plan.interval`.

    A tick is a planned instant in whole Unix seconds, `start` and `end` included. Plans with the same fields are equal.
    """

    expression: str
    timezone: str
    every: int
    start: int | None
    end: int | None

    @classmethod
    def cron(cls, expr: str, timezone: str = "UTC", start: datetime | None = None, end: datetime | None = None) -> Plan:
        """Five fields (minute, hour, day of the month, month, day of the week) or an alias such as `@daily`, in an IANA time zone.

        Names (`MON`, `JAN`), `L` (last day), `MON#2` (second Monday) and `L5` (last Friday) as in croniter. If both day fields say
        something other than `*` (`*/2` does), either is enough. ValueError for anything else, for what never comes, for steps beyond
        their field, and for a naive `start` or `end`.
        """
        plan = _cron(expr, timezone, _whole("start", start, up=True), _whole("end", end))
        if plan.fault:
            raise ValueError(plan.fault)
        if plan.start is not None and plan.end is not None and plan.after(plan.start - 1) is None:
            raise ValueError(f"{plan.text} has no tick from start to end; move one of them, or leave it out")
        return plan

    @classmethod
    def interval(cls, every: float | str | timedelta, start: datetime | None = None, end: datetime | None = None) -> Plan:
        """Return a plan of equal intervals, such as `300`, `"5m"` or a timedelta. ValueError below 1 s and for fractions of a second."""
        return _interval(parse_seconds(every), _whole("start", start, up=True), _whole("end", end))

    def after(self, moment: int) -> int | None:
        """Return the first tick later than `moment` (Unix seconds), None if there is none."""
        low, high = self._within(moment, clock.LAST)
        if self.every:
            found: int | None = low + self.every - (low - (self.start or 0)) % self.every
        else:
            found = self._first_after(low)
        return found if found is not None and found <= high else None

    def between(self, after: int, until: int, keep: int) -> tuple[list[int], int]:
        """Return the newest `keep` (up to 1,000) ticks later than `after` and not later than `until`, ascending, and the number of all of
        them.

        The number is counted backwards, up to 1,000, which then means 1,000 or more. So years of downtime cost little more than days.
        """
        if not 0 <= keep <= COUNTED:
            raise ValueError(f"keep={keep}: use 0 to {COUNTED}")
        low, high = self._within(after, until)
        if low >= high:
            return [], 0
        if self.every:
            newest = high - (high - (self.start or 0)) % self.every
            count = min(-(-(newest - low) // self.every), COUNTED)
            return [newest - i * self.every for i in reversed(range(min(keep, count)))], count
        ticks = self._newest(low, high)
        return ticks[len(ticks) - min(keep, len(ticks)) :], len(ticks)

    def _within(self, after: int, until: int) -> tuple[int, int]:
        """Return the part of (after, until] between start and end."""
        start = clock.FIRST if self.start is None else self.start - 1
        return max(after, start), min(until, clock.LAST - 1 if self.end is None else self.end)

    def _first_after(self, low: int) -> int | None:
        parsed = clock.parse(self.expression)
        day: int | None = low // clock.DAY
        while day is not None and day * clock.DAY < clock.LAST:
            ticks = clock.ticks_of(self.expression, self.timezone, day)
            if ticks and ticks[-1] > low:
                return ticks[bisect_right(ticks, low)]
            # The ticks of a date fall on its UTC day or a neighbouring one, as no offset reaches 24 hours.
            date = parsed.next_day(day)
            day = None if date is None else max(day + 1, date - 1)
        return None

    def _newest(self, low: int, high: int) -> list[int]:
        """Return the newest ticks in (low, high], ascending; at most COUNTED."""
        parsed = clock.parse(self.expression)
        found: list[int] = []
        day: int | None = high // clock.DAY
        while day is not None and day >= low // clock.DAY and len(found) < COUNTED:
            ticks = clock.ticks_of(self.expression, self.timezone, day)
            found += reversed(ticks[bisect_right(ticks, low) : bisect_right(ticks, high)])
            date = parsed.next_day(day, -1)
            day = None if date is None else min(day - 1, date + 1)
        return found[:COUNTED][::-1]

    @property
    def text(self) -> str:
        """The plan for people: `*/5 * * * * Europe/Berlin`, or `every 5m`."""
        if not self.every:
            return f"{self.expression} {self.timezone}"
        seconds, unit = next(u for u in _UNITS if self.every % u[0] == 0)
        return f"every {self.every // seconds}{unit}"

    def local(self, tick: int) -> datetime:
        """Return the tick as local time of the plan."""
        return clock.at(tick, self.timezone)

    def note(self, tick: int) -> str:
        """Return a remark if a clock change moved or doubled this tick; else an empty text."""
        if self.every:
            return ""
        local = self.local(tick)
        if skipped := clock.skipped(self.expression, self.timezone, tick):
            first, last = _shown(skipped[0], local), _shown(skipped[-1], local)
            times = f"{first} was" if len(skipped) == 1 else f"{first} to {last} were"
            return f"{times} skipped: clocks went forward to {local:%H:%M}"
        if local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset():
            return f"the {'second' if local.fold else 'first of two'} {local:%H:%M}"
        return ""

    @property
    def fault(self) -> str:
        """Return why this plan can't be declared; empty if it can. Earlier versions stored such plans, which still run as before."""
        return "" if self.every else steps.beyond(self.expression)

    def remarks(self) -> list[str]:
        """Return remarks for people: correct plans with surprising effects."""
        return [] if self.every else steps.remarks(self.expression)

    def to_json(self) -> str:
        """Return the stored form: the same text for equal plans."""
        fields: dict[str, Any] = {"every": self.every} if self.every else {"cron": self.expression, "timezone": self.timezone}
        fields |= {name: value for name in ("start", "end") if (value := getattr(self, name)) is not None}
        return json.dumps(fields, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Plan:
        """Read the stored form. ValueError for anything else, also for the form of a newer version: a partly read plan would be wrong."""
        try:
            fields = json.loads(text)
        except (TypeError, ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise ValueError(f"{text!r:.200} is not a stored plan; declare the entry again")
        bounds = [fields.pop(name, None) for name in ("start", "end")]
        if all(bound is None or type(bound) is int for bound in bounds):
            if set(fields) == {"every"} and type(fields["every"]) is int:
                return _interval(fields["every"], *bounds)
            if set(fields) == {"cron", "timezone"}:
                return _cron(fields["cron"], fields["timezone"], *bounds)
        raise ValueError(f"{text!r:.200} is not a plan this version can read; update Fusion here, or declare the entry again")


def _cron(expr: Any, timezone: Any, start: int | None, end: int | None) -> Plan:
    if not isinstance(expr, str) or not isinstance(timezone, str):
        raise ValueError(f"cron={expr!r}, timezone={timezone!r}: use texts such as '*/5 * * * *' and 'Europe/Berlin'")
    text = " ".join(expr.split())
    if text.startswith("@"):
        text = text.lower()
    clock.parse(text)
    clock.zone(timezone)
    return Plan(text, timezone, 0, *_bounds(start, end))


def _interval(seconds: float, start: int | None, end: int | None) -> Plan:
    if not 1 <= seconds <= _LONGEST or seconds != int(seconds):
        raise ValueError(f"every={seconds!r} seconds: use whole seconds, from 1 to {_LONGEST}")
    return Plan("", "UTC", int(seconds), *_bounds(start, end))


def _bounds(start: int | None, end: int | None) -> tuple[int | None, int | None]:
    for name, bound in (("start", start), ("end", end)):
        if bound is not None and not clock.FIRST < bound < clock.LAST:
            raise ValueError(f"{name}={bound}: use a time within the years 2 to 9998")
    if start is not None and end is not None and end < start:
        raise ValueError("end is before start; swap them, or leave one out")
    return start, end


def _whole(name: str, moment: Any, *, up: bool = False) -> int | None:
    """Return Unix seconds, rounded so that no tick lies outside."""
    if moment is None:
        return None
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise ValueError(f"{name}={moment!r} has no time zone; use e.g. datetime(2026, 1, 31, tzinfo=timezone.utc)")
    since: timedelta = moment - clock.EPOCH
    return -(-since // _SECOND) if up else since // _SECOND


def _shown(wall_time: int, beside: datetime) -> str:
    """Return a wall time for people, with its date if that differs from the tick's."""
    shown = clock.EPOCH + timedelta(seconds=wall_time)
    return f"{shown:%H:%M}" if shown.date() == beside.date() else f"{shown:%Y-%m-%d %H:%M}"
