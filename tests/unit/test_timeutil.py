from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusion.timeutil import from_iso, now, parse_seconds, to_iso

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
    with pytest.raises(ValueError, match="is no duration"):
        parse_seconds(value)  # type: ignore[arg-type]
