"""Charts, drawn here as SVG: lines over time with axes, their numbers as a table, and small lines without axes.

Nothing in them needs a script: the page's own one (`static/chart.js`) reads the table to show the numbers under the pointer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any

from fusion.dashboard.filters import number, seconds

#: The size of a drawing; it is stretched to the room that the page has.
_WIDTH, _HEIGHT = 600, 140
#: Distances of the marks of the axis of time, in seconds, and the most marks.
_MARKS = (60, 300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600, 43200, 86400, 172800, 432000, 864000)
_MOST_MARKS = 7
_DAY = 86400
#: Tops of the axis of values: a power of ten times one of these. Half of it is a round number, too.
_TOPS = (1, 2, 4, 6, 8, 10)
#: The marks of an axis of durations, all equally far apart: 30 ms and 5 minutes are both read on it.
_LADDER = (0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36_000.0, 360_000.0)
#: Most points of a line.
POINTS = 180


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart. `colour`: the class of its meaning, the same on all pages. A value of None leaves a gap."""

    name: str
    colour: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines on one axis of time. `label`: the sentence for who can't see it. `at`: when each step began, in Unix seconds; `step`: how long one
    is. `forming`: the last step is not over; the way to it is dashed. `unit`: what the values are. `durations`: they are seconds."""

    label: str
    unit: str
    at: Sequence[int]
    step: int
    lines: Sequence[Line]
    forming: bool = True
    durations: bool = False

    @property
    def known(self) -> bool:
        """True if there is anything to draw."""
        return any(value is not None for line in self.lines for value in line.values)

    @property
    def show(self) -> Callable[[float | None], str]:
        """Return how a value is written."""
        return seconds if self.durations else _short

    @property
    def marks(self) -> list[tuple[int, float]]:
        """The marks on the axis of time: when, and at which share of the width."""
        first, last = self.at[0], self.at[-1]
        span = max(1, last - first)
        apart = next((one for one in _MARKS if span / one <= _MOST_MARKS), _MARKS[-1])
        return [(at, (at - first) / span) for at in range(-(-first // apart) * apart, last + 1, apart)]

    @property
    def scale(self) -> tuple[list[float], Callable[[float], float]]:
        """The marks on the axis of values, from the bottom, and the height of a value as a share."""
        most = max((value for line in self.lines for value in line.values if value is not None), default=0.0)
        if self.durations:
            rungs = _LADDER[: max(3, next((nth for nth, rung in enumerate(_LADDER, 1) if rung >= most), len(_LADDER)))]
            return list(rungs), lambda value: _height(value, rungs)
        size = 10 ** math.floor(math.log10(most)) if most >= 1 else 1
        top = max(2, next(size * one for one in _TOPS if size * one >= most))
        return [0, top / 2, top], lambda value: value / top


def drawn(chart: Chart) -> Any:
    """Return a chart as HTML: the axes and lines, a legend with the last full values, and all numbers as a table."""
    from markupsafe import Markup

    marks, height = chart.scale
    ticks = chart.marks
    days = chart.at[-1] - chart.at[0] > 2 * _DAY
    grid = "".join(f"M0 {_y(height(mark))}H{_WIDTH}" for mark in marks) + "".join(
        f"M{_WIDTH * share:.1f} 0V{_HEIGHT}" for _, share in ticks
    )
    lines = Markup("").join(_line(line, height, chart.forming) for line in chart.lines)
    ys = Markup("").join(Markup("<span>{}</span>").format(chart.show(mark).replace(".0 s", " s")) for mark in reversed(marks))
    xs = Markup("").join(
        Markup('<text x="{:.1f}%" y="1em" data-at="{}"{}>{}</text>').format(
            share * 100, at, Markup(" data-day") if days else "", _when(at, days)
        )
        for at, share in ticks
        if 0.03 < share < 0.97  # there its text would stand beyond the edge
    )
    legend = Markup("").join(
        Markup('<li class="{}"><span>{}</span> <strong>{}</strong>').format(
            line.colour, line.name, chart.show(_last(line.values, chart.forming))
        )
        for line in chart.lines
    )
    return Markup(
        '<figure class="chart" data-chart data-step="{}"><figcaption><ul>{}</ul><span class="quiet">{}</span></figcaption>'
        '<div class="plot"><div class="ys" aria-hidden="true">{}</div>'
        '<svg class="lines" role="img" aria-label="{}" viewBox="0 0 {} {}" preserveAspectRatio="none"><path class="grid" d="{}"/>{}</svg>'
        '<svg class="xs" aria-hidden="true">{}</svg></div>{}</figure>'
    ).format(chart.step, legend, chart.unit, ys, chart.label, _WIDTH, _HEIGHT, grid, lines, xs, _table(chart, days))


def sparkline(values: Sequence[float | None], label: str, width: int = 120, height: int = 24) -> Any:
    """Return a small line chart without axes. A value of None leaves a gap."""
    from markupsafe import Markup

    most = max((value for value in values if value is not None), default=0)
    paths = _stretches(values, lambda value: value / most if most else 0.0, width, height)
    shown = Markup("").join(Markup('<polyline points="{}"/>').format(path) for path in paths)
    return Markup('<svg class="spark" role="img" aria-label="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg>').format(
        label, width, height, shown
    )


# -- steps of a history as the points of lines


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a history, joined so that a line has at most `POINTS`. `at`: when each begins; `size`: its seconds; `rows`: what is known of
    each; `forming`: the last one is not over."""

    at: Sequence[int]
    size: int
    rows: Sequence[Sequence[Mapping[str, Any]]]
    forming: bool

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], step: int, span: int, now: float) -> Steps:
        """Join rows, each with its time `at`, of the last `span` seconds. Their borders are round times, which stay where they are."""
        size = next((one for one in (step, *_MARKS) if one % step == 0 and one >= step and span / one <= POINTS), _DAY)
        last = int(now) // size
        first = last - span // size + 1
        found: list[list[Mapping[str, Any]]] = [[] for _ in range(first, last + 1)]
        for row in rows:
            place = int(datetime.fromisoformat(row["at"]).timestamp()) // size - first
            if 0 <= place < len(found):
                found[place].append(row)
        return cls([number * size for number in range(first, last + 1)], size, found, True)

    def each(
        self, value: Callable[[Mapping[str, Any]], float | None], joined: Callable[[list[float]], float] = max
    ) -> list[float | None]:
        """Return a value for each step: that of its rows, joined; None where no row has one."""
        found = list[float | None]()
        for rows in self.rows:
            values = [one for row in rows if (one := value(row)) is not None]
            found.append(joined(values) if values else None)
        return found

    def by_class(self, value: Callable[[Mapping[str, Any], str], float | None], classes: Sequence[str]) -> list[Line]:
        """Return a line for each class of priority. The value of joined steps is the largest."""
        return [Line(name, name, self.each(lambda row: value(row, name))) for name in classes]  # noqa: B023 - called at once

    def rate(self, value: Callable[[Mapping[str, Any]], float]) -> list[float | None]:
        """Return how many there were a minute in each step; 0 where nothing was."""
        return [sum(map(value, rows)) * 60 / self.size for rows in self.rows]


# -- the parts of a chart


def _line(line: Line, height: Callable[[float], float], forming: bool) -> Any:
    from markupsafe import Markup

    full = list(line.values)
    if forming and full:
        full[-1] = None
    paths = [Markup('<polyline{} points="{}"/>').format(_dot(one), one) for one in _stretches(full, height, _WIDTH, _HEIGHT)]
    if forming and len(line.values) > 1 and line.values[-1] is not None:
        ends = [None] * (len(line.values) - 2) + list(line.values[-2:])
        paths += [
            Markup('<polyline class="forming" points="{}"/>').format(one) for one in _stretches(ends, height, _WIDTH, _HEIGHT)
        ]
    return Markup('<g class="{}">{}</g>').format(line.colour, Markup("").join(paths))


def _dot(path: str) -> Any:
    """Return the class of a point that stands alone."""
    from markupsafe import Markup

    first, _, rest = path.partition(" ")
    return Markup(' class="dot"') if first == rest else ""


def _stretches(values: Sequence[float | None], height: Callable[[float], float], width: int, tall: int) -> list[str]:
    """Return the points of each stretch without gaps."""
    step, found, points = width / max(1, len(values) - 1), list[str](), list[str]()
    for nth, value in enumerate([*values, None]):
        if value is not None:
            points.append(f"{nth * step:.1f},{_y(height(value), tall)}")
        elif points:
            found.append(" ".join(points if len(points) > 1 else points * 2))
            points = []
    return found


def _height(value: float, rungs: Sequence[float]) -> float:
    """Return the height of a duration: between two marks it grows by factors."""
    for nth, (low, high) in enumerate(pairwise(rungs)):
        if value <= high:
            return (nth + math.log(max(value, low) / low) / math.log(high / low)) / (len(rungs) - 1)
    return 1.0


def _y(share: float, tall: int = _HEIGHT) -> str:
    return f"{tall - 1 - (tall - 2) * min(1.0, share):.1f}"


def _table(chart: Chart, days: bool) -> Any:
    from markupsafe import Markup

    heads = Markup("").join(Markup('<th class="n">{}').format(line.name) for line in chart.lines)
    rows = Markup("").join(
        Markup('<tr><th scope="row" data-at="{}">{}{}').format(
            at,
            _when(at, False, dated=days),
            Markup("").join(Markup('<td class="n">{}').format(chart.show(line.values[nth])) for line in chart.lines),
        )
        for nth, at in enumerate(chart.at)
    )
    return Markup(
        '<details class="numbers"><summary>Numbers</summary><div class="scrolls" tabindex="0" role="region" aria-label="{}"><table>'
        "<thead><tr><th>Time{}</tr></thead><tbody>{}"
        "</tbody></table></div></details>"
    ).format(chart.label, heads, rows)


def _when(at: int, day: bool, *, dated: bool = False) -> str:
    """Return a time as it is written where no script shows it in the viewer's zone."""
    moment = datetime.fromtimestamp(at, timezone.utc)
    return f"{moment:%b} {moment.day}" if day else f"{moment:%m-%d %H:%M}" if dated else f"{moment:%H:%M}"


def _last(values: Sequence[float | None], forming: bool) -> float | None:
    full = values[:-1] if forming and len(values) > 1 else values
    return full[-1] if full else None


def _short(value: float | None) -> str:
    """Return a count: with a digit behind the point where it needs one, large ones as `12.3 k`."""
    if value is None or value < 1000:
        return number(value, 0 if value is None or value == int(value) or value >= 100 else 1)
    return f"{value / 1000:,.0f} k" if value >= 100_000 else f"{value / 1000:.1f} k" if value % 1000 else f"{value / 1000:.0f} k"
