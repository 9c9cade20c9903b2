"""Finds steps and ranges of cron expressions whose effect differs from what a reader expects."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from croniter import croniter

_NAMES = ("minute", "hour", "day of the month", "month", "day of the week")
#: Values after which each field repeats; a month has no fixed number of days.
_PERIODS = (60, 24, None, 12, 7)
#: Unit of each field for `every`: its seconds, and its letter. Months have none.
_UNITS = ((60, "m"), (3600, "h"), (86_400, "d"), None, (86_400, "d"))
_PLURALS = ("minutes", "hours", "days", "months", "days")
_LONGEST = 10**9


def beyond(text: str) -> str:
    """Return why a readable expression can't be declared; empty if it can.

    A step may lead out of its field at once, so that it has no effect. And croniter omits values of a range with steps that goes over the
    end of its field: `3-1/2` lacks the 1.
    """
    for i, part, values, step in _steps(text):
        name = _NAMES[i]
        if step > 1 and _wraps(i, part):
            return f"{text!r}: {part!r} goes over the end of the {name} field in steps, which programs read differently; list each {name}"
        if len(values) == 1 and step > 1 and step != _PERIODS[i]:
            only, every = values[0], _every(i, step)
            return (
                f"{text!r}: the step of {part!r} ends beyond the {name} field, so that it means {name} {only} alone;"
                f" write {only}{every and f', or for every {step} {_PLURALS[i]} use {every}'}"
            )
    return ""


def remarks(text: str) -> list[str]:
    """Return remarks on steps that don't divide their field, and on ranges that wrap around: valid, but surprising."""
    said = []
    for i, part, values, step in _steps(text):
        period = _PERIODS[i]
        if "-" not in part and len(values) > 1 and step > 1 and len(values) * step != period:
            every = _every(i, step)
            said.append(
                f"{part!r}: after {_NAMES[i]} {values[-1]} comes {values[0]}, so it is not every {step} {_PLURALS[i]}"
                f"{every and f'; for that use {every}'}"
            )
    if not text.startswith("@"):
        for i, field in enumerate(text.split()):
            # Only ranges of numbers: FRI-MON is surely meant that way.
            parts = (part for part in field.split(",") if part[0].isdigit() and _wraps(i, part))
            said += [
                f"{part!r}: this range goes over the end of the {_NAMES[i]} field, and on from its beginning" for part in parts
            ]
    return said


def _steps(text: str) -> Iterator[tuple[int, str, list[int], int]]:
    """Yield each part with a step: its field's number, the part, the remaining values, ascending, and the step."""
    if text.startswith("@"):
        return
    for i, field in enumerate(text.split()):
        for part in field.split(","):
            if "/" in part:
                values = [int(value) for value in _values(i, part) if value != "*"]
                yield i, part, values, int(part.rsplit("/", 1)[1])


def _wraps(i: int, part: str) -> bool:
    """Return True for a range whose end comes before its start."""
    ends = re.match(r"(\w+)-(\w+)", part)
    return ends is not None and _number(i, ends[1]) > _number(i, ends[2])


def _number(i: int, value: str) -> int:
    if value in "lL":  # the last day, in a range the last there may be
        return 31
    return int(value) if value.isdigit() else int(_values(i, value)[0])


def _values(i: int, part: str) -> Sequence[int | str]:
    return croniter.expand(" ".join(part if other == i else "*" for other in range(5)))[0][i]


def _every(i: int, step: int) -> str:
    unit = _UNITS[i]
    return f'every="{step}{unit[1]}"' if unit and step * unit[0] <= _LONGEST else ""
