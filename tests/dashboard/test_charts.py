"""Charts: axes, gaps, the step that is not over, and the same numbers as a table."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from fusion.dashboard.charts import POINTS, Chart, Line, Steps, drawn

AT = [1_893_456_000 + 60 * nth for nth in range(4)]  # 2030-01-01 00:00 UTC


def chart(*values: float | None, **more: object) -> str:
    lines = [Line("failed", "bad", values)]
    return str(drawn(Chart("Jobs that failed", "jobs a minute", AT[: len(values)], 60, lines, **more)))  # type: ignore[arg-type]


def points(html: str, kind: str = "") -> list[str]:
    return re.findall(rf'<polyline{kind} points="([^"]+)"', html)


def test_the_axis_has_round_values_and_times() -> None:
    html = chart(0, 37, 12, 5, forming=False)
    assert re.findall(r"<span>([^<]+)</span>", html.partition('class="ys"')[2]) == ["40", "20", "0"]
    assert 'data-at="1893456060">00:01</text>' in html


def test_the_step_that_is_not_over_is_dashed_and_not_the_value_in_the_legend() -> None:
    html = chart(4, 8, 6, 1)
    assert len(points(html)) == len(points(html, ' class="forming"')) == 1
    assert points(html)[0].count(",") == 3 and points(html, ' class="forming"')[0].count(",") == 2
    assert "<strong>6</strong>" in html


def test_what_is_not_known_is_a_gap() -> None:
    html = chart(4, None, 6, 6, forming=False)
    assert len(points(html)) == len(points(html, ' class="dot"')) == 1, "a point that stands alone is drawn as one"


def test_the_table_has_what_is_drawn() -> None:
    html = chart(4, None, 6, 1500)
    assert re.findall(r'<td class="n">([^<]*)', html) == ["4", "\u2013", "6", "1.5 k"]


@pytest.mark.parametrize(("values", "marks"), [((0.02, 0.3), ["1 s", "100 ms", "10 ms"]), ((0.05, 300), ["10m", "1m", "10 s"])])
def test_durations_of_all_sizes_are_read_on_one_axis(values: tuple[float, ...], marks: list[str]) -> None:
    html = chart(*values, durations=True, forming=False)
    assert re.findall(r"<span>([^<]+)</span>", html.partition('class="ys"')[2])[:3] == marks
    low, high = (float(point.partition(",")[2]) for point in points(html)[0].split())
    assert low - high > 30, "both are visible"


@pytest.mark.parametrize("value", [0, 1, 9.99, 10, 99, 1000, 123_456, 10**9, 360_000, 10**7])
def test_no_value_is_drawn_outside(value: float) -> None:
    for durations in (False, True):
        for point in points(chart(value, value, forming=False, durations=durations))[0].split():
            assert 0 <= float(point.partition(",")[2]) <= 140


def steps(rows: Sequence[tuple[str, int]], step: int = 60, span: int = 3600, now: float = AT[3] + 5) -> Steps:
    return Steps.of([{"at": at, "n": n} for at, n in rows], step, span, now)


def test_steps_are_spread_over_their_time() -> None:
    found = steps([("2030-01-01T00:00:00Z", 1), ("2030-01-01T00:03:00Z", 4), ("2029-12-31T22:00:00Z", 9)])
    assert (found.at[-1], found.size, len(found.at)) == (AT[3], 60, 60)
    assert found.each(lambda row: row["n"])[-4:] == [1, None, None, 4] and found.rate(lambda row: row["n"])[-4:] == [1, 0, 0, 4]
    assert sum(found.rate(lambda row: row["n"])) == 5


@pytest.mark.parametrize(("step", "span"), [(60, 3600), (60, 21600), (60, 86400), (3600, 604800), (3600, 2592000)])
def test_many_steps_are_joined_at_round_times(step: int, span: int) -> None:
    found = steps([("2030-01-01T00:00:00Z", 60), ("2030-01-01T00:01:00Z", 30)], step, span)
    assert 50 < len(found.at) <= POINTS and not any(at % found.size for at in found.at)
    assert found.each(lambda row: row["n"])[-1 if found.size > 240 else -2] in (60, 30, None)
    rated = found.rate(lambda row: row["n"])
    assert sum(rated) * found.size / 60 == pytest.approx(90)


def test_texts_of_strangers_are_escaped() -> None:
    bad = "<script>alert(1)</script>"
    html = str(drawn(Chart(bad, bad, AT[:1], 60, [Line(bad, "bad", [1])])))
    assert "<script" not in html
