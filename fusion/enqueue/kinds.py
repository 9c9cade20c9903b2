"""Kinds of options: convert a producer's value to the stored one, and read a value from JSON or from a text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from fusion.exceptions import DeserializationError, OptionError
from fusion.jobs.meta import to_json
from fusion.kernel.rates import Rate
from fusion.kernel.serializers import JSONSerializer
from fusion.kernel.timeutil import FURTHEST, parse_moment, parse_seconds
from fusion.retry import Retry
from fusion.store.layout.names import check_job_id, check_new_job_id
from fusion.store.layout.pauses import this_user
from fusion.store.layout.score import check_priority

#: Most characters of a text for lists, if it comes over HTTP.
_LONGEST = 500
_MOST_RETRIES = 1000
_MOST_PARENTS = 1000
#: The highest limit of a key.
MOST_AT_ONCE = 1_000_000
#: Half a surrogate pair can't be encoded.
_KEY = re.compile(r"[^\s\x00-\x1f\x7f\ud800-\udfff]{1,200}\Z")
_BATCH = re.compile(r"[A-Za-z0-9_-]{1,128}\Z")
#: The highest whole number that a text may name.
MOST = 10**9


class AnyBatch(Protocol):
    """A `fusion.Batch`, or anything with an `id`."""

    id: str


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads an option from text or JSON, where no Python object can be given. Both functions raise a ValueError that states the rule."""

    #: The values that it takes, for tables.
    takes: str
    #: For the command line's help; empty for a switch, which takes no value.
    metavar: str
    from_json: Callable[[Any], Any]
    from_text: Callable[[str], Any]
    #: True if it may be given several times on the command line.
    repeats: bool = False


# -- what is stored


def seconds(name: str, value: Any, *, endless: bool = False) -> float:
    """Return a duration over 0 in seconds, or with `endless` -1. OptionError for the option `name`."""
    found = _parsed(name, value)
    if endless and found == -1:
        return -1
    if found <= 0 or found > FURTHEST:
        more = ", or -1 for no limit" if endless else ""
        raise OptionError(name, f"use a duration over 0, up to {FURTHEST:.0f} s (31 years){more}", value)
    return found


def limit(name: str, value: Any) -> float:
    """Return a duration over 0, or -1 for none, in as few bytes as possible."""
    if type(value) is int and 0 < value <= FURTHEST:
        return value  # mostly; every enqueue runs this
    return number(seconds(name, value, endless=True))


def milliseconds(name: str, value: Any) -> int:
    """Return a duration over 0 in whole milliseconds, at least 1."""
    return max(1, round(seconds(name, value) * 1000))


def keeping(name: str, value: Any) -> int:
    """Return the whole seconds for which something is kept; -1 for ever. Half a second becomes 1, since 0 would not keep it."""
    if type(value) is int and 0 <= value <= FURTHEST:
        return value
    found = _parsed(name, value)
    if found != -1 and not 0 <= found <= FURTHEST:
        raise OptionError(name, f"use seconds from 0 to {FURTHEST:.0f} (31 years), or -1 to keep it for ever", value)
    return math.ceil(found)


def given_text(name: str, value: str) -> str | None:
    """Return the text; None for an empty one."""
    return value or None


def one_line(name: str, value: Any) -> str:
    """Return a text for people, which may be empty. OptionError for a long one, and for control characters."""
    try:
        return _text(value)
    except ValueError as error:
        raise OptionError(name, str(error), value) from None


def as_is(name: str, value: Any) -> Any:
    """Return the value unchanged."""
    return value


def mapping(name: str, value: Any) -> str | None:
    """Return a mapping as JSON; None for an empty one. SerializationError or PayloadTooLarge."""
    return to_json(name, value) if value else None


def policy(name: str, value: Any) -> str:
    """Return the stored form of a Retry."""
    if not isinstance(value, Retry):
        raise OptionError(name, "use Retry(max=...), or Retry(within=...)", value)
    return value.to_json()


def switch(name: str, value: Any) -> int | None:
    """Return 1 if it is on, else None."""
    return 1 if value else None


def other_than(default: str, *others: str) -> Callable[[str, Any], str | None]:
    """Return a function that accepts one of these words; the default is not stored."""
    rule = f"use {' or '.join(map(repr, (default, *others)))}"

    def stored(name: str, value: Any) -> str | None:
        if value not in (default, *others):
            raise OptionError(name, rule, value)
        return None if value == default else str(value)

    return stored


def key(name: str, value: Any) -> str:
    """Return a key that several jobs may have."""
    if callable(value):
        raise OptionError(name, "use a text; a function that makes it of the arguments goes to @job(...)")
    if not isinstance(value, str) or not _KEY.match(value):
        raise OptionError(name, "use a text of 1 to 200 characters without spaces and control characters", value)
    return value


def batch_id(name: str, value: Any) -> str:
    """Return the id of a batch, given as an id or as the batch itself."""
    found = getattr(value, "id", value)
    if not isinstance(found, str) or not _BATCH.match(found):
        raise OptionError(name, "use a Batch, or its id: 1 to 128 of the characters A-Z a-z 0-9 _ -", value)
    return found


def at_once(name: str, value: Any) -> int:
    """Return a number of jobs that may run at once."""
    if type(value) is not int or not 1 <= value <= MOST_AT_ONCE:
        raise OptionError(name, f"use a whole number from 1 to {MOST_AT_ONCE:,}", value)
    return value


def rate(name: str, value: Any) -> str:
    """Return a rate: a number of starts in a time."""
    return Rate.parse(value, name=name).stored


def number(seconds: float) -> float:
    """Return the same number, as an int if it is whole."""
    return int(seconds) if float(seconds).is_integer() else seconds


def _parsed(name: str, value: Any) -> float:
    try:
        return parse_seconds(value)
    except ValueError as error:
        raise OptionError(name, str(error)) from None


def check_length(name: str, length: Any) -> int:
    """Return a number of jobs that may wait in a queue. OptionError for the option `name`."""
    if isinstance(length, bool) or not isinstance(length, int) or not 1 <= length <= MOST:
        raise OptionError(name, f"use a whole number from 1 to {MOST:,}", length)
    return length


def pause_terms(duration: float | str | timedelta | None, reason: str, by: str) -> tuple[float | None, dict[str, str]]:
    """Return for how many seconds a queue is paused, None for no end, and the texts shown to people. OptionError."""
    time = None if duration is None else seconds("duration", duration)
    return time, {name: one_line(name, value) for name, value in (("reason", reason), ("by", by or this_user()))}


# -- what is read


def _duration(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError("use seconds, or a text like 90s, 5m, 2h, 1d")
    try:
        return parse_seconds(value)
    except ValueError:
        raise ValueError(f"{value!r}: use seconds, or a text like 90s, 5m, 2h, 1d") from None


def _span(value: Any) -> float:
    seconds = _duration(value)
    if not 0 < seconds <= FURTHEST:
        raise ValueError(f"{value!r}: use a duration over 0")
    return seconds


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST or not value.isprintable():
        raise ValueError(f"use a text of up to {_LONGEST} characters without control characters")
    return value


def _key(value: Any) -> str:
    try:
        return key("", value)
    except OptionError as error:
        raise ValueError(f"{str(value)[:60]!r}: {error.rule}") from None


def _batch(value: Any) -> str:
    try:
        return batch_id("", value)
    except OptionError as error:
        raise ValueError(f"{str(value)[:60]!r}: {error.rule}") from None


def _rate(value: Any) -> str:
    try:
        rate("", value)
    except OptionError as error:
        raise ValueError(f"{str(value)[:60]!r}: {error.rule}") from None
    return str(value)


def _priority(value: Any) -> int:
    try:
        return check_priority(value)
    except OptionError as error:
        raise ValueError(f"{value!r}: {error.rule}") from None


def _moment(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("use ISO 8601 with a zone, like 2030-01-31T09:00+01:00 or 2030-01-31T08:00Z")
    return parse_moment(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("use true or false")
    return value


def _whole(value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"use a whole number from {low} to {high}")
    return value


def _digits(text: str) -> int | str:
    """Return a text of digits as a number; any other text unchanged."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else text


def _intervals(value: Any) -> list[float]:
    found = [_duration(figure) for figure in (value if isinstance(value, list) else [value])]
    if not found or len(found) > _MOST_RETRIES or not all(0 <= figure <= FURTHEST for figure in found):
        raise ValueError(f"use seconds from 0 to {FURTHEST:.0f}, one figure or a list")
    return found


def _url(value: Any) -> str:
    """Return a URL from text. It is checked later, as a producer's is, and never shown."""
    if not isinstance(value, str):
        raise ValueError("use a text, like https://hooks.example.com/jobs")
    return value


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError('use a JSON object, like {"order": 4711}')
    return value


def _object_of(text: str) -> dict[str, Any]:
    try:
        return _object(JSONSerializer().parse(text.encode()))
    except (DeserializationError, UnicodeEncodeError) as error:
        raise ValueError(f"{text[:60]!r} is not JSON that can be sent: {error}") from None


def _job_ids(value: Any) -> list[str]:
    found = [check_job_id(one) for one in (value if isinstance(value, list) else [value])]
    if not found or len(found) > _MOST_PARENTS:
        raise ValueError(f"use 1 to {_MOST_PARENTS:,} job ids")
    return found


def whole(low: int, high: int) -> Reader:
    """Return a reader of a whole number from `low`; from the network at most `high`."""
    return Reader(
        f"{low} to {high:,}", "N", lambda value: _whole(value, low, high), lambda text: _whole(_digits(text), low, MOST)
    )


def words(*names: str) -> Reader:
    """Return a reader of one of these words."""

    def read(value: Any) -> str:
        if value not in names:
            raise ValueError(f"{str(value)[:60]!r}: use {' or '.join(names)}")
        return str(value)

    return Reader(", ".join(f"`{name}`" for name in names), "|".join(names), read, read)


PRIORITY = Reader(
    "`high`, `moderate`, `low`, 0 to 255", "high|moderate|low|0..255", _priority, lambda text: _priority(_digits(text))
)
DURATION = Reader('seconds, `"90s"`, `"5m"`, `"2h"`, `"1d"`', "SECONDS", _duration, _duration)
SPAN = Reader(DURATION.takes, "SECONDS", _span, _span)
MOMENT = Reader('a time with its zone, `"2030-01-31T09:00+01:00"`', "TIME", _moment, _moment)
TEXT = Reader("a text", "TEXT", _text, str)
TAG = Reader(TEXT.takes, "TAG", _text, str)
KEY = Reader("1 to 200 characters, no spaces", "KEY", _key, _key)
RATE = Reader('`"100/60s"`, `"10/s"`, `"5/2m"`', "RATE", _rate, _rate)
JOB_ID = Reader("1 to 128 of `A-Z a-z 0-9 _ -`", "ID", check_new_job_id, check_new_job_id)
BATCH = Reader(JOB_ID.takes, "ID", _batch, _batch)
JOB_IDS = Reader("job ids, one or a list", "ID", _job_ids, lambda text: check_job_id(text), repeats=True)
SWITCH = Reader("true, false", "", _flag, lambda text: _flag({"true": True, "false": False}.get(text)))
RETRIES = whole(0, _MOST_RETRIES)
INTERVALS = Reader("seconds, or a list of them", "SECONDS", _intervals, lambda text: _intervals(text)[0], repeats=True)
URL = Reader("a URL", "URL", _url, _url)
OBJECT = Reader("a JSON object", "JSON", _object, _object_of)
