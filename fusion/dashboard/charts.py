"""Draw charts as SVG. Their classes give them the page's colours, and their labels are for screen readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_WIDTH, _HEIGHT = 600, 140


def sparkline(values: Sequence[float | None], label: str, width: int = 120, height: int = 24) -> Any:
    """Return a small line chart without axes. A value of None leaves a gap."""
    from markupsafe import Markup

    paths = _paths(values, max((value for value in values if value is not None), default=0), width, height)
    drawn = Markup("").join(Markup('<polyline points="{}"/>').format(path) for path in paths)
    return Markup('<svg class="spark" role="img" aria-label="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg>').format(
        label, width, height, drawn
    )


def lines(series: Mapping[str, Sequence[float | None]], label: str, unit: str = "") -> Any:
    """Return a chart with a line for each series on one axis. The highest value stands beside it. The series have the classes `s0`, `s1`... and
    are named below."""
    from markupsafe import Markup

    most = max((value for values in series.values() for value in values if value is not None), default=0)
    drawn, named = [], []
    for nth, (name, values) in enumerate(series.items()):
        drawn += [
            Markup('<polyline class="s{}" points="{}"/>').format(nth, path) for path in _paths(values, most, _WIDTH, _HEIGHT)
        ]
        named.append(Markup('<li class="s{}">{}</li>').format(nth, name))
    shown = f"{most:,.0f}" if most >= 10 or most == int(most) else f"{most:.2f}"
    return Markup(
        '<figure class="chart"><svg role="img" aria-label="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg>'
        '<figcaption><span class="most">{} {}</span><ul>{}</ul></figcaption></figure>'
    ).format(label, _WIDTH, _HEIGHT, Markup("").join(drawn), shown, unit, Markup("").join(named))


def _paths(values: Sequence[float | None], most: float, width: int, height: int) -> list[str]:
    """Return the points of each stretch without gaps."""
    step, found, points = width / max(1, len(values) - 1), list[str](), list[str]()
    for nth, value in enumerate([*values, None]):
        if value is not None:
            y = height - 1 - (height - 2) * (value / most if most else 0)
            points.append(f"{nth * step:.1f},{y:.1f}")
        elif points:
            found.append(" ".join(points if len(points) > 1 else points * 2))
            points = []
    return found
