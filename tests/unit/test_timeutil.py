from __future__ import annotations

from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusion.kernel.timeutil import FURTHEST, from_iso, now, parse_moment, parse_seconds, to_delay, to_iso, to_unix

UTC = timezone.utc


def test_the_stored_form() -> None:
    assert to_iso(datetime(2026, 1, 31, 9, 30, tzinfo=UTC)) == "2026-01-31T09:30:00.000000Z"
    plus_two = timezone(timedelta(hours=2))
    assert to_iso(datetime(2026, 1, 31, 1, 30, 0, 5, plus_two)) == "2026-01-30T23:30:00.000005Z"
    with pytest.raises(ValueError, match="no time zone"):
        to_iso(datetime(2026, 1, 31))  # noqa: DTZ001 - that is the point


@given(st.datetimes(min_value=datetime(1000, 1, 1), timezones=st.timezones()))  # noqa: DTZ001 - bounds are naive
def test_there_and_back(moment: datetime) -> None:
    try:
        text = to_iso(moment)
    except OverflowError:
        return  # beyond the year 9999 in UTC
    assert from_iso(text) == from_iso(text.encode()) == moment.astimezone(UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31T09:30:00.000001Z", datetime(2026, 1, 31, 9, 30, 0, 1, UTC)),
        ("2026-01-31T09:30:00.5", datetime(2026, 1, 31, 9, 30, 0, 500_000, UTC)),
        ("2026-01-31T09:30:00", datetime(2026, 1, 31, 9, 30, tzinfo=UTC)),
        (b"2026-01-31T09:30:00Z", datetime(2026, 1, 31, 9, 30, tzinfo=UTC)),
        ("2026-01-31 09:30:00+02:00", datetime(2026, 1, 31, 7, 30, tzinfo=UTC)),
        (None, None),
        ("", None),
        (b"", None),
        ("yesterday", None),
        (b"\xff\xfe", None),
        ("1738315800.5", None),
    ],
)
def test_old_forms_and_garbage(text: str | bytes | None, expected: datetime | None) -> None:
    found = from_iso(text)
    assert found == expected
    assert found is None or found.utcoffset() == timedelta(0)


def test_now() -> None:
    assert now().tzinfo is UTC


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (90, 90), (2.5, 2.5), (0, 0), (-1, -1), ("90", 90), ("2.5", 2.5), ("90s", 90), ("5m", 300), ("1H", 3600), ("2d", 172_800),
        ("0.5h", 1800), ("-1", -1), (timedelta(minutes=2, milliseconds=5), 120.005),
    ],
)  # fmt: skip
def test_durations(value: float | str | timedelta, expected: float) -> None:
    assert parse_seconds(value) == pytest.approx(expected)


@pytest.mark.parametrize(
    "value", ["", "s", "five", "5 m x", "1w", "nan", "inf", "-inf", "1e999", float("nan"), float("inf"), True, None, [5]]
)
def test_what_is_no_duration(value: object) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_seconds(value)  # type: ignore[arg-type]


# -- times that something is to be due


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (datetime(2026, 1, 31, 9, 30, tzinfo=UTC), 1_769_851_800.0),
        (datetime(2026, 1, 31, 10, 30, tzinfo=ZoneInfo("Europe/Berlin")), 1_769_851_800.0),
        (datetime(2026, 7, 1, 2, 0, 0, 500_000, timezone(timedelta(hours=2))), 1_782_864_000.5),
        (datetime(1950, 1, 1, tzinfo=UTC), 0.0),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=14))), 0.0),
    ],
)
def test_a_time_in_unix_seconds(moment: datetime, expected: float) -> None:
    assert to_unix(moment) == expected


class Nowhere(tzinfo):
    """A zone that does not know its offset: what has it is naive all the same."""

    def utcoffset(self, moment: datetime | None) -> None:
        return None


@pytest.mark.parametrize(
    ("moment", "error", "said"),
    [
        (datetime(2026, 1, 31, 9), ValueError, "has no time zone; use datetime.now(timezone.utc) + "),  # noqa: DTZ001 - the point
        (datetime(2026, 1, 31, 9, tzinfo=Nowhere()), ValueError, "has no time zone; use datetime.now(timezone.utc) + "),
        (datetime.max.replace(tzinfo=UTC), ValueError, "(31 years) ahead; use a nearer time"),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))), ValueError, "(31 years) ahead"),
        (date(2026, 1, 31), TypeError, "datetime.date(2026, 1, 31) is not a datetime; use datetime.now(timezone.utc) + "),
        (1_769_851_800, TypeError, "1769851800 is not a datetime; use datetime.now(timezone.utc) + "),
        (float("nan"), TypeError, "nan is not a datetime"),
        ("2026-01-31T09:00Z", TypeError, "is not a datetime"),
        (timedelta(minutes=5), TypeError, "is not a datetime"),
        (None, TypeError, "None is not a datetime"),
    ],
    ids=str,
)
def test_what_is_no_time_to_be_due(moment: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error) as caught:
        to_unix(moment, "enqueue_at")
    assert str(caught.value).startswith("enqueue_at: ")
    assert said in str(caught.value)


def test_the_furthest_time() -> None:
    moment = datetime.now(UTC) + timedelta(seconds=FURTHEST - 60)
    assert to_unix(moment) == moment.timestamp()
    with pytest.raises(ValueError, match="over 1000000000 s"):
        to_unix(moment + timedelta(seconds=120))


@pytest.mark.parametrize(
    ("value", "expected"), [(0, 0), ("5m", 300), (timedelta(milliseconds=1), 0.001), (FURTHEST, FURTHEST), ("0.5h", 1800)]
)
def test_a_delay(value: Any, expected: float) -> None:
    assert to_delay(value) == expected


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (-1, "-1 must be from 0 to 1000000000 seconds (31 years)"),
        ("-5m", "'-5m' must be from 0"),
        (timedelta(days=-1), "must be from 0"),
        (FURTHEST + 1, "must be from 0"),
        (timedelta.max, "must be from 0"),
        (float("nan"), "nan is not a duration; use seconds, a timedelta"),
        ("soon", "'soon' is not a duration"),
        (datetime(2026, 1, 31, tzinfo=UTC), "is not a duration"),
        (None, "None is not a duration"),
        (True, "True is not a duration"),
    ],
    ids=str,
)
def test_what_is_no_delay(value: Any, said: str) -> None:
    with pytest.raises(ValueError, match=r"^enqueue_in: ") as caught:
        to_delay(value, "enqueue_in")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2030-01-31T09:00+01:00", datetime(2030, 1, 31, 8, tzinfo=UTC)),
        ("2030-01-31T08:00Z", datetime(2030, 1, 31, 8, tzinfo=UTC)),
        ("2030-01-31 08:00:00.5+00:00", datetime(2030, 1, 31, 8, 0, 0, 500_000, UTC)),
        ("20300131T080000Z", datetime(2030, 1, 31, 8, tzinfo=UTC)),
    ],
)
def test_a_time_as_people_type_it(text: str, expected: datetime) -> None:
    assert parse_moment(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2030-01-31T09:00", "has no time zone; add Z for UTC or an offset like +02:00: 2030-01-31T09:00:00Z"),
        ("2030-01-31", "has no time zone; add Z for UTC or an offset like +02:00: 2030-01-31T00:00:00Z"),
        ("tomorrow", "'tomorrow' is not a time; use ISO 8601 with a zone, like 2030-01-31T09:00+01:00"),
        ("2030-02-30T09:00Z", "is not a time"),
        ("", "'' is not a time"),
    ],
)
def test_what_is_no_such_time(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_moment(text)
    assert said in str(caught.value)
