"""Steps and ranges in cron expressions that are not what their reader takes them for."""

from __future__ import annotations

import json

import pytest
from croniter import croniter
from hypothesis import example, given
from hypothesis import strategies as st

from fusion.cron.plan import Plan

NOW = 1_767_225_600  # 2026-01-01T00:00:00Z


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        # steps that end beyond their field are never taken: `*/90` would be every full hour
        (
            "*/90 * * * *",
            r"'\*/90' ends beyond the minute field, so that it means minute 0 alone; write 0, .* use every=\"90m\"$",
        ),
        ("*/61 * * * *", 'use every="61m"'),
        ("0 */25 * * *", 'means hour 0 alone; write 0, or for every 25 hours use every="25h"'),
        ("0 0 */32 * *", 'means day of the month 1 alone; write 1, or for every 32 days use every="32d"'),
        ("0 0 */31 * *", 'use every="31d"'),
        ("0 0 1 */13 *", "means month 1 alone; write 1$"),
        ("0 0 1 FEB/11 *", "means month 2 alone; write 2$"),
        ("0 0 * * */8", 'use every="8d"'),
        ("0 0 * * MON-FRI/5", "means day of the week 1 alone"),
        ("10-20/15 * * * *", "means minute 10 alone; write 10"),
        ("58/5 * * * *", "means minute 58 alone"),
        ("1,2,*/90 * * * *", r"the step of '\*/90'"),
        ("*/99999999999999 * * * *", "write 0$"),
        # croniter leaves values out of these
        ("3-1/2 * * * *", "'3-1/2' goes over the end of the minute field in steps.*list each minute"),
        ("0 22-2/2 * * *", "list each hour"),
        ("0 0 * * SAT-MON/2", "list each day of the week"),
    ],
)
def test_steps_that_lead_nowhere_are_refused(expr: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Plan.cron(expr)


@pytest.mark.parametrize(
    "expr",
    [
        "*/60 * * * *",
        "3/60 * * * *",
        "0 */24 * * *",
        "0 0 1 */12 *",
        "0 0 * * */7",
        "0 0 * * MON/7",
        "7-9/1 * * * *",
        "59/1 * * * *",
    ],
)
def test_a_step_over_the_whole_field_is_what_it_says(expr: str) -> None:
    assert Plan.cron(expr).remarks() == []


@pytest.mark.parametrize("expr", ["*/90 * * * *", "0 */25 * * *", "3-1/2 * * * *"])
def test_expressions_stored_by_earlier_versions_keep_their_ticks(expr: str) -> None:
    plan = Plan.from_json(json.dumps({"cron": expr, "timezone": "UTC"}))
    walk = croniter(expr, NOW)
    tick: int | None = NOW
    for _ in range(5):
        assert tick is not None
        assert (tick := plan.after(tick)) == int(walk.get_next())
    assert expr in plan.fault
    assert Plan.from_json(plan.to_json()) == plan
    assert not Plan.from_json('{"cron": "*/30 * * * *", "timezone": "UTC"}').fault


@pytest.mark.parametrize(
    ("expr", "remarks"),
    [
        ("*/45 * * * *", ["'*/45': after minute 45 comes 0, so it is not every 45 minutes; for that use every=\"45m\""]),
        ("0 */5 * * *", ["'*/5': after hour 20 comes 0, so it is not every 5 hours; for that use every=\"5h\""]),
        ("0 0 */2 * *", ["'*/2': after day of the month 31 comes 1, so it is not every 2 days; for that use every=\"2d\""]),
        ("0 0 1 */5 *", ["'*/5': after month 11 comes 1, so it is not every 5 months"]),
        ("0 0 * * */2", ["'*/2': after day of the week 6 comes 0, so it is not every 2 days; for that use every=\"2d\""]),
        ("45/10 * * * *", ["'45/10': after minute 55 comes 45, so it is not every 10 minutes; for that use every=\"10m\""]),
        ("50-10 * * * *", ["'50-10': this range goes over the end of the minute field, and on from its beginning"]),
        ("0 0 * * FRI-MON", []),
        ("0 0 * * 5-7", []),
        ("*/15,3 */6 * */3 *", []),
        ("7/20 * * * *", []),
        ("0-30/20 * * * *", []),
        ("0 0 15,L * MON#2,L5", []),
        ("@daily", []),
    ],
)
def test_surprising_expressions_get_a_remark(expr: str, remarks: list[str]) -> None:
    assert Plan.cron(expr).remarks() == remarks
    assert Plan.interval(45 * 60).remarks() == []


_PARTS = st.from_regex(
    r"\A(\*|\?|L[0-7]?|[0-9]{1,2}|MON|sun|JAN|dec)(-([0-9]{1,2}|L|FRI|sun|MAR|dec))?(/[0-9]{1,3})?(#[1-5L])?\Z"
)
_FIELDS = st.just("*") | st.lists(_PARTS, min_size=1, max_size=3).map(",".join)


@given(st.tuples(*[_FIELDS] * 5).map(" ".join))
@example("0 0 20-L * *")
@example("0 0 */2,20-L/3 * *")
@example("0 0 * * sun-MON")
@example("0 0 * * 7-2/1")
@example("0 0 L dec-JAN MON#2,L5")
def test_whatever_was_stored_can_be_shown(expr: str) -> None:
    """`cron list` asks both of each entry."""
    try:
        plan = Plan.from_json(json.dumps({"cron": expr, "timezone": "UTC"}))
    except ValueError:
        return
    assert all(isinstance(text, str) for text in (plan.fault, *plan.remarks()))
