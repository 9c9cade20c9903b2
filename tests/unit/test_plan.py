"""Which instants a plan names, away from clock changes: those are in test_plan_dst.py."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from croniter import croniter
from hypothesis import assume, example, given
from hypothesis import strategies as st

from fusion.cron.plan import COUNTED, Plan

UTC = timezone.utc
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
A_YEAR = 365 * 86_400
NOW = 1_767_225_600  # 2026-01-01T00:00:00Z, a Thursday


def unix(text: str) -> int:
    return int(datetime.fromisoformat(text + "+00:00").timestamp())


def shown(tick: int) -> str:
    return (EPOCH + timedelta(seconds=tick)).strftime("%Y-%m-%d %H:%M")


def first(plan: Plan, after: int, count: int) -> list[int]:
    ticks: list[int] = []
    while len(ticks) < count and (tick := plan.after(after)) is not None:
        ticks.append(tick)
        after = tick
    return ticks


@pytest.mark.parametrize(
    ("expr", "after", "expected"),
    [
        ("* * * * *", "2026-01-01 00:00:59", ["2026-01-01 00:01", "2026-01-01 00:02"]),
        ("*/25 * * * *", "2026-01-01 00:26", ["2026-01-01 00:50", "2026-01-01 01:00", "2026-01-01 01:25"]),
        ("7/20 3 * * *", "2026-01-01 04:00", ["2026-01-02 03:07", "2026-01-02 03:27", "2026-01-02 03:47", "2026-01-03 03:07"]),
        ("0 9-17/4 * * MON-FRI", "2026-01-02 13:00", ["2026-01-02 17:00", "2026-01-05 09:00"]),
        ("0 0 * * SAT-SUN", "2026-01-01", ["2026-01-03 00:00", "2026-01-04 00:00", "2026-01-10 00:00"]),
        ("0 0 * * 7", "2026-01-01", ["2026-01-04 00:00", "2026-01-11 00:00"]),
        ("0 0 * * fri-mon", "2026-01-01", ["2026-01-02 00:00", "2026-01-03 00:00", "2026-01-04 00:00", "2026-01-05 00:00"]),
        ("0 0 1 NOV-JAN *", "2026-01-01", ["2026-11-01 00:00", "2026-12-01 00:00", "2027-01-01 00:00"]),
        # a leap day, and none in 2100
        ("0 0 29 2 *", "2026-01-01", ["2028-02-29 00:00", "2032-02-29 00:00"]),
        ("0 0 29 2 *", "2096-02-29", ["2104-02-29 00:00"]),
        # five Mondays in February: once in 28 years, in 40 across 2100
        ("0 0 * 2 MON#5", "2026-01-01", ["2044-02-29 00:00", "2072-02-29 00:00", "2112-02-29 00:00"]),
        # month ends: a month without a 31st has no such tick, the last day it has
        ("0 0 31 * *", "2026-01-31", ["2026-03-31 00:00", "2026-05-31 00:00"]),
        ("0 12 L * *", "2028-01-31 12:00", ["2028-02-29 12:00", "2028-03-31 12:00", "2028-04-30 12:00"]),
        ("0 0 15,L 2 *", "2026-01-01", ["2026-02-15 00:00", "2026-02-28 00:00", "2027-02-15 00:00"]),
        ("0 0 30 2,4 *", "2026-01-01", ["2026-04-30 00:00", "2027-04-30 00:00"]),
        ("0 0 * * MON#2", "2026-01-01", ["2026-01-12 00:00", "2026-02-09 00:00"]),
        ("0 0 * * MON#1,FRI#3", "2026-01-01", ["2026-01-05 00:00", "2026-01-16 00:00", "2026-02-02 00:00"]),
        ("0 0 * * L5", "2026-01-01", ["2026-01-30 00:00", "2026-02-27 00:00"]),
        # both day fields: either is enough, whatever they look like
        ("0 0 13 * FRI", "2026-01-01", ["2026-01-02 00:00", "2026-01-09 00:00", "2026-01-13 00:00", "2026-01-16 00:00"]),
        ("0 0 */10 * MON", "2026-01-02", ["2026-01-05 00:00", "2026-01-11 00:00", "2026-01-12 00:00"]),
        ("0 0 2 * SUN#1", "2026-01-01", ["2026-01-02 00:00", "2026-01-04 00:00", "2026-02-01 00:00", "2026-02-02 00:00"]),
        ("0 0 30 2 MON", "2026-01-01", ["2026-02-02 00:00", "2026-02-09 00:00"]),
        ("0 0 ? * 1", "2026-01-01", ["2026-01-05 00:00", "2026-01-12 00:00"]),
        ("@hourly", "2026-01-01", ["2026-01-01 01:00", "2026-01-01 02:00"]),
        ("@daily", "2026-01-01", ["2026-01-02 00:00"]),
        ("@Midnight ", "2026-01-01", ["2026-01-02 00:00"]),
        ("@weekly", "2026-01-01", ["2026-01-04 00:00", "2026-01-11 00:00"]),
        ("@monthly", "2026-01-01", ["2026-02-01 00:00"]),
        ("@yearly", "2026-01-01", ["2027-01-01 00:00"]),
        ("@annually", "2026-01-01", ["2027-01-01 00:00"]),
        # before the first of all marks, and before 1970
        ("0 0 1 1 *", "1960-06-01", ["1961-01-01 00:00"]),
    ],
)
def test_the_ticks_of_an_expression(expr: str, after: str, expected: list[str]) -> None:
    assert [shown(tick) for tick in first(Plan.cron(expr), unix(after), len(expected))] == expected


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        ("0 0 * * * *", "6 fields.*five: minute, hour.*for seconds use every"),
        ("0 0 * * * * 2026", "for seconds use every"),
        ("* * * *", "has 4 fields"),
        ("", "has 0 fields"),
        ("@reboot", "@reboot.*use one of @hourly, @daily.*enqueue the job where the service starts"),
        ("@fortnightly", "use one of @hourly"),
        ("60 * * * *", "'60' is not a valid minute; use 0-59"),
        ("* 24 * * *", "'24' is not a valid hour; use 0-23"),
        ("* * 0 * *", "'0' is not a valid day of the month; use 1-31, or L"),
        ("* * * 13 *", "'13' is not a valid month; use 1-12 or JAN-DEC"),
        ("* * * * MUN", "'MUN' is not a valid day of the week; use 0-7 or SUN-SAT"),
        ("* * * * 1#6", "MON#2 for the second"),
        ("*/0 * * * *", "'\\*/0' is not a valid minute"),
        ("* * * * 1,2#3", "'1,2#3' is not a valid day of the week"),
        ("R * * * *", "'R' means another minute to each scheduler; name the minute"),
        ("R(0-29) * * * *", "name the minute"),
        ("* h/6 * * *", "'h/6' means another hour to each scheduler; name the hour"),
        ("0 0 15W * *", "W.*is not supported.*name the days"),
        ("5-5 * * * *", "'5-5' is one minute to some and every minute to others; use 5 or \\*"),
        ("0 0 * jan-JAN *", "is one month to some"),
        ("0 0 30 2 *", "never comes: no such month has more than 29 days; use L"),
        ("0 0 31 4,6,SEP,11 *", "never comes.*more than 30 days"),
        ("0 0 30-31 FEB *", "never comes"),
        (None, "cron=None.*use texts"),
        (5, "use texts"),
    ],
)
def test_an_invalid_expression_names_the_valid_form(expr: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Plan.cron(expr)


@pytest.mark.parametrize("name", ["Mars/Olympus", "Europe", "../../etc/passwd", "a\0b", "x" * 5000, "CEST"])
def test_an_unknown_zone_is_named_with_what_may_be_missing(name: str) -> None:
    with pytest.raises(ValueError, match=r"is not known here; use an IANA name such as 'Europe/Berlin'.*pip install tzdata"):
        Plan.cron("@daily", name)


@pytest.mark.parametrize("name", ["", "localtime", "posixrules", "right/Europe/Berlin", "posix/UTC", None, UTC])
def test_a_zone_that_another_machine_understands_otherwise_is_refused(name: Any) -> None:
    with pytest.raises(ValueError, match=r"'Europe/Berlin'"):
        Plan.cron("@daily", name)


_FIELD = st.text("*/,-#L01579?WHR@ \tMONJAn\u0665\x00", max_size=6) | st.just("*")


@given(st.lists(_FIELD, min_size=5, max_size=5))
def test_whatever_is_typed_is_a_plan_with_a_next_tick_or_a_value_error(fields: list[str]) -> None:
    try:
        plan = Plan.cron(" ".join(fields))
    except ValueError:
        return
    tick = plan.after(NOW)
    assert tick is not None and tick > NOW


_MINUTES = st.sampled_from(["*", "*/7", "0", "59", "5,50", "10-40/15", "3/20"])
_HOURS = st.sampled_from(["*", "*/5", "0", "23", "2,14", "9-17", "20/2"])
_DAYS = st.sampled_from(["*", "1", "31", "29", "L", "10-20/4", "*/9", "5,L"])
_MONTHS = st.sampled_from(["*", "2", "JAN,DEC", "*/5", "4-6", "nov-feb"])
_WEEKDAYS = st.sampled_from(["*", "0", "7", "MON-FRI", "SUN,WED", "*/2", "fri-mon", "L2"])
_EXPRESSIONS = (
    st.tuples(_MINUTES, _HOURS, _DAYS, _MONTHS, _WEEKDAYS).map(" ".join).filter(lambda expr: not expr.endswith(" 31 2 *"))
)


@pytest.mark.long
@given(_EXPRESSIONS, st.integers(NOW - 20 * A_YEAR, NOW + 20 * A_YEAR))
def test_in_utc_the_ticks_are_those_croniter_walks_to(expr: str, after: int) -> None:
    # with L2 or MON#2 croniter ands the day fields, or drops the first of them
    assume("L" not in expr.split()[4] or expr.split()[2] == "*")
    walk = croniter(expr, after)
    assert first(Plan.cron(expr), after, 12) == [int(walk.get_next()) for _ in range(12)]


class TestStartAndEnd:
    def test_both_are_ticks_if_they_are_planned(self) -> None:
        day = datetime(2026, 1, 1, tzinfo=UTC)
        plan = Plan.cron("0 * * * *", start=day, end=day + timedelta(hours=2))
        assert first(plan, 0, 10) == [NOW, NOW + 3600, NOW + 7200]
        assert plan.between(0, NOW + A_YEAR, 10) == ([NOW, NOW + 3600, NOW + 7200], 3)
        assert plan.after(NOW + 7200) is None
        assert plan.between(NOW + 7200, NOW + A_YEAR, 10) == ([], 0)

    def test_a_plan_without_any_tick_between_them_is_refused(self) -> None:
        day = datetime(2026, 1, 2, tzinfo=UTC)
        with pytest.raises(ValueError, match=r"0 0 1 \* \* UTC has no tick from start to end; move one of them"):
            Plan.cron("0 0 1 * *", start=day, end=day + timedelta(days=29))
        assert Plan.cron("0 0 1 * *", start=day, end=day + timedelta(days=30)).after(NOW) == NOW + 31 * 86_400
        stored = Plan.from_json(f'{{"cron": "0 0 1 * *", "timezone": "UTC", "start": {NOW + 1}, "end": {NOW + 2}}}')
        assert stored.after(0) is None, "stored by an earlier version: it has ended"

    def test_fractions_are_rounded_inwards(self) -> None:
        start = datetime(2026, 1, 1, 0, 0, 0, 1, UTC)
        end = datetime(2026, 1, 1, 1, 59, 59, 999_999, UTC)
        assert first(Plan.cron("0 * * * *", start=start, end=end), 0, 10) == [NOW + 3600]
        plan = Plan.interval(60, start=start, end=start + timedelta(seconds=61))
        assert first(plan, 0, 10) == [NOW + 1, NOW + 61]
        assert (Plan.interval(1, start=datetime(1969, 12, 31, 23, 59, 58, 500_000, UTC)).start) == -1

    def test_they_are_instants_whatever_zone_they_are_in(self) -> None:
        east = datetime(2026, 1, 1, 9, 0, tzinfo=timezone(timedelta(hours=9)))
        assert Plan.interval("5m", start=east) == Plan.interval("5m", start=datetime(2026, 1, 1, tzinfo=UTC))

    @pytest.mark.parametrize("moment", [datetime(2026, 1, 1), "2026-01-01", 0, datetime(2026, 1, 1).date()])  # noqa: DTZ001 - that is the point
    @pytest.mark.parametrize("name", ["start", "end"])
    def test_a_naive_one_is_refused(self, name: str, moment: Any) -> None:
        with pytest.raises(ValueError, match=f"{name}=.*has no time zone; use"):
            Plan.cron("@daily", **{name: moment})
        with pytest.raises(ValueError, match="has no time zone"):
            Plan.interval(5, **{name: moment})

    def test_an_end_before_the_start_is_refused(self) -> None:
        day = datetime(2026, 1, 1, tzinfo=UTC)
        with pytest.raises(ValueError, match="end is before start"):
            Plan.cron("@daily", start=day, end=day - timedelta(seconds=1))

    def test_a_year_no_clock_can_reckon_with_is_refused(self) -> None:
        with pytest.raises(ValueError, match="years 2 to 9998"):
            Plan.cron("@daily", end=datetime.max.replace(tzinfo=UTC))

    def test_there_is_no_tick_after_the_last_year(self) -> None:
        for plan in (Plan.cron("@daily", "Asia/Tokyo"), Plan.cron("0 0 29 2 *"), Plan.interval("1d")):
            assert plan.after(10**15) is None
            assert plan.after(unix("9998-12-31 23:59:59")) is None
            assert plan.between(10**14, 10**15, 5) == ([], 0)
            assert plan.after(-(10**15)) is not None


class TestIntervals:
    def test_they_count_from_1970_so_that_no_restart_shifts_them(self) -> None:
        plan = Plan.interval("5m")
        assert first(plan, NOW + 1, 3) == [NOW + 300, NOW + 600, NOW + 900]
        assert plan.after(NOW + 299) == NOW + 300
        assert plan.after(NOW + 300) == NOW + 600
        assert plan.after(-301) == -300

    def test_they_count_from_their_start(self) -> None:
        plan = Plan.interval(timedelta(hours=7), start=datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC))
        assert first(plan, 0, 3) == [NOW + 5, NOW + 25_205, NOW + 50_405]
        assert plan.after(NOW + 25_205) == NOW + 50_405

    @pytest.mark.parametrize("every", [0, -5, 0.5, 1.5, "0s", "1.5", timedelta(milliseconds=1500), 10**10, 1e300])
    def test_what_is_not_whole_seconds_is_refused(self, every: Any) -> None:
        with pytest.raises(ValueError, match="use whole seconds, from 1"):
            Plan.interval(every)

    @pytest.mark.parametrize("every", [True, None, "often", float("nan"), float("inf")])
    def test_what_is_no_duration_is_refused(self, every: Any) -> None:
        with pytest.raises(ValueError, match="is not a duration"):
            Plan.interval(every)

    @given(st.integers(1, 10**6), st.none() | st.integers(-(10**9), 10**10), st.integers(-(10**10), 10**10))
    def test_the_next_tick_is_less_than_one_interval_away(self, every: int, start: int | None, moment: int) -> None:
        plan = Plan("", "UTC", every, start, None)
        tick = plan.after(moment)
        assert tick is not None
        assert moment < tick <= max(moment + every, moment if start is None else start)
        assert (tick - (start or 0)) % every == 0


_PLANS = st.builds(
    lambda expr, timezone, start, end: replace(Plan.cron(expr, timezone), start=start, end=end),
    _EXPRESSIONS,
    st.sampled_from(["UTC", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe"]),
    start=st.none() | st.integers(NOW - A_YEAR, NOW),
    end=st.none() | st.integers(NOW, NOW + A_YEAR),
) | st.builds(Plan.interval, st.integers(60, 10**6), start=st.none() | st.just(EPOCH + timedelta(seconds=NOW + 7)))


class TestBetween:
    @given(_PLANS, st.integers(NOW - A_YEAR, NOW + A_YEAR), st.integers(-100, 40 * 86_400), st.integers(0, 120))
    def test_it_is_what_repeated_after_finds(self, plan: Plan, low: int, length: int, keep: int) -> None:
        ticks, after = [], low
        while (tick := plan.after(after)) is not None and tick <= low + length:
            assert tick > after
            ticks.append(after := tick)
        assert plan.between(low, low + length, keep) == (ticks[-keep:] if keep else [], min(len(ticks), COUNTED))

    @pytest.mark.parametrize("plan", [Plan.cron("* * * * *", "Europe/Berlin"), Plan.interval("1m")], ids=lambda plan: plan.text)
    @pytest.mark.parametrize("keep", [1, 100, COUNTED])
    def test_a_long_downtime_is_counted_up_to_a_thousand(self, plan: Plan, keep: int) -> None:
        ticks, count = plan.between(NOW - 30 * 86_400, NOW, keep)
        assert count == COUNTED
        assert ticks == list(range(NOW - 60 * (keep - 1), NOW + 1, 60))
        assert plan.between(NOW - 60 * 999, NOW, 1) == ([NOW], 999)
        assert plan.between(NOW - 60 * 1000, NOW, 1) == ([NOW], 1000)

    def test_rare_ticks_are_found_across_decades(self) -> None:
        ticks, count = Plan.cron("0 0 29 2 *").between(0, unix("2026-01-01"), 2)
        assert ([shown(tick) for tick in ticks], count) == (["2020-02-29 00:00", "2024-02-29 00:00"], 14)

    @pytest.mark.parametrize("keep", [-1, COUNTED + 1])
    def test_more_than_it_counts_cannot_be_kept(self, keep: int) -> None:
        with pytest.raises(ValueError, match="use 0 to 1000"):
            Plan.interval(5).between(0, 100, keep)


class TestText:
    def test_people_read_the_expression_and_the_zone(self) -> None:
        assert Plan.cron(" */5  * * *\t* ", "Europe/Berlin").text == "*/5 * * * * Europe/Berlin"
        assert Plan.cron("@DAILY").text == "@daily UTC"

    @pytest.mark.parametrize(
        ("every", "text"), [(1, "1s"), (90, "90s"), ("5m", "5m"), (5400, "90m"), (7200, "2h"), (timedelta(days=7), "7d")]
    )
    def test_people_read_an_interval_in_its_largest_unit(self, every: Any, text: str) -> None:
        assert Plan.interval(every).text == f"every {text}"

    def test_a_tick_on_the_wall_clock(self) -> None:
        assert Plan.cron("@daily", "Asia/Kolkata").local(NOW).isoformat() == "2026-01-01T05:30:00+05:30"
        assert Plan.interval(5).local(NOW).isoformat() == "2026-01-01T00:00:00+00:00"


class TestStoredForm:
    @given(_PLANS)
    def test_there_and_back(self, plan: Plan) -> None:
        again = Plan.from_json(plan.to_json())
        assert again == plan and hash(again) == hash(plan)
        assert Plan.from_json(plan.to_json().encode()).to_json() == plan.to_json()

    def test_it_is_canonical(self) -> None:
        """Its hash tells whether a declaration changed."""
        day = datetime(2026, 1, 1, tzinfo=UTC)
        assert Plan.cron(" @Daily").to_json() == '{"cron": "@daily", "timezone": "UTC"}'
        assert Plan.interval("5m", start=day, end=day).to_json() == f'{{"end": {NOW}, "every": 300, "start": {NOW}}}'
        assert Plan.interval("5m") == Plan.interval(300.0) == Plan.interval(timedelta(minutes=5))

    @pytest.mark.parametrize(
        "text",
        [
            "", "{", "null", "[]", "5", '"@daily"', "{}", b"\xff", "[" * 100_000, None,
            '{"cron": "@daily"}', '{"timezone": "UTC"}', '{"cron": 5, "timezone": "UTC"}', '{"cron": "@daily", "timezone": null}',
            '{"cron": "@daily", "timezone": "Mars/Olympus"}', '{"cron": "61 * * * *", "timezone": "UTC"}',
            '{"every": 0}', '{"every": "5m"}', '{"every": true}', '{"every": 1.0}', '{"every": NaN}', '{"every": 1e999}',
            '{"every": 5, "cron": "@daily", "timezone": "UTC"}', '{"every": 5, "start": "now"}', '{"every": 5, "end": 1e99}',
            '{"every": 5, "start": false}', '{"every": 5, "start": 10, "end": 5}', '{"every": 1' + "0" * 400 + "}",
            '{"every": 5, "start": 1' + "0" * 400 + "}",
        ],
    )  # fmt: skip
    def test_rubbish_is_a_value_error(self, text: Any) -> None:
        with pytest.raises(ValueError, match=r"declare the entry again|use |swap them"):
            Plan.from_json(text)

    def test_what_a_newer_version_added_is_not_dropped(self) -> None:
        for plan in (Plan.cron("@daily"), Plan.interval(5)):
            text = json.dumps(json.loads(plan.to_json()) | {"calendar": "TARGET2"})
            with pytest.raises(ValueError, match="update Fusion here"):
                Plan.from_json(text)

    _JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5), st.lists, max_leaves=4)

    @given(st.dictionaries(st.sampled_from(["cron", "timezone", "every", "start", "end"]), _JSON | st.just("@daily")))
    @example({"every": 5, "start": 0})
    def test_any_object_is_a_plan_or_a_value_error(self, fields: dict[str, Any]) -> None:
        try:
            plan = Plan.from_json(json.dumps(fields))
        except ValueError:
            return
        assert Plan.from_json(plan.to_json()) == plan
