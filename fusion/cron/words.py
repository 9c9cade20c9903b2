"""Plans in words: `every day at 09:00`. They follow from the meaning of an expression, not from its spelling, so no spelling is misread."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from fusion.cron import clock

if TYPE_CHECKING:
    from fusion.cron.plan import Plan

#: Most items of a list in words; with more there is no sentence.
_MOST = 6
#: Equal steps that count as a series.
_SERIES = 4
_UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"),
)
_NTH = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", "l": "last"}


def in_words(plan: Plan) -> str:
    """Return a plan in English, without its zone: `every day at 09:00`, `every 5 minutes`. Empty if that needs more than a short
    sentence."""
    return every(plan.every) if plan.every else expressed(plan.expression)


def every(seconds: int) -> str:
    """Return an interval in words: `every 5 minutes`."""
    size, unit = next(one for one in _UNITS if seconds % one[0] == 0)
    count = seconds // size
    return f"every {unit}" if count == 1 else f"every {count:,} {unit}s"


@lru_cache(maxsize=512)
def expressed(expression: str) -> str:
    """Return the meaning of a cron expression; empty if that needs more than a short sentence. ValueError if it is invalid."""
    parsed = clock.parse(expression)
    times, days = _times(parsed.times), _days(parsed)
    if times is None or days is None:
        return ""
    if times.startswith("every"):
        return times + (f", {days.removeprefix('every day ')}" if days != "every day" else "")
    return f"{days} {times}"


def _times(times: Sequence[int]) -> str | None:
    steps = {later - time for time, later in pairwise(times)}
    step = min(steps, default=0)
    if len(steps) == 1 and len(times) >= 2 and len(times) * step == clock.DAY:
        return every(step) + _from(times[0], step)
    if len(steps) == 1 and len(times) >= _SERIES:
        return f"{every(step)} from {_clock(times[0])} to {_clock(times[-1])}"
    minutes = sorted({time % 3600 for time in times})
    if len(times) == 24 * len(minutes) and len(minutes) <= _MOST:
        return f"every hour at {_and([f':{minute // 60:02}' for minute in minutes])}"
    return f"at {_and([_clock(time) for time in times])}" if len(times) <= _MOST else None


def _from(first: int, step: int) -> str:
    """Return where a series that fills the day begins; empty if at midnight."""
    if not first:
        return ""
    return f" at :{first // 60:02}" if step == 3600 else f" from {_clock(first)} on"


def _days(parsed: clock.Expression) -> str | None:
    months = sorted(int(month) for month in parsed.months)
    if len(months) > _MOST and len(months) < 12:
        return None
    named = "" if len(months) == 12 else _and([_MONTHS[month - 1] for month in months])
    found = [one for one in (_dates(parsed, named), _weekdays(parsed, named)) if one != ""]
    if None in found:
        return None
    if not found:
        return f"every day in {named}" if named else "every day"
    return " and ".join(one for one in found if one)


def _dates(parsed: clock.Expression, months: str) -> str | None:
    """Return the days of the month in words; empty if all days are allowed, None if it is too long."""
    if parsed.days is None:
        return ""
    dates = sorted(int(day) for day in parsed.days if day != "l")
    if len(parsed.days) > _MOST:
        return None
    named = _and([*map(_ordinal, dates), *(["last day"] if "l" in parsed.days else [])])
    return f"on the {named} of {months or 'every month'}"


def _weekdays(parsed: clock.Expression, months: str) -> str | None:
    """Return the days of the week in words, from Monday on; empty and None as for `_dates`."""
    if parsed.weekdays is None:
        return ""
    days = sorted((int(day) for day in parsed.weekdays), key=lambda day: (day + 6) % 7)
    within = f" in {months}" if months else ""
    if parsed.nth:
        if {*parsed.nth} != {*days}:
            return None
        return f"on the {_and([f'{_which(parsed.nth[day])} {_WEEKDAYS[day]}' for day in days])} of {months or 'every month'}"
    if len(days) == 7:
        return f"every day{within}"
    if len(days) > 2 and (days[-1] + 6) % 7 - (days[0] + 6) % 7 == len(days) - 1:
        return f"{_WEEKDAYS[days[0]]} to {_WEEKDAYS[days[-1]]}{within}"
    return f"every {_and([_WEEKDAYS[day] for day in days])}{within}"


def _which(nth: frozenset[int | str]) -> str:
    return _and([_NTH[one] for one in sorted(nth, key=lambda one: 9 if one == "l" else int(one))])


def _ordinal(number: int) -> str:
    ending = "th" if 10 < number < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _clock(time: int) -> str:
    return f"{time // 3600:02}:{time % 3600 // 60:02}"


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
