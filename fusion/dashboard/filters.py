"""What templates show values with. All texts come from Redis, where strangers may have written them: they are escaped, and what steers a
terminal, a page's direction of writing or a copied command is made visible."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from fusion.dashboard import charts
from fusion.kernel.redaction import cut, printable
from fusion.kernel.states import LIGHTS

#: Shown where there is nothing to show.
NOTHING = "\u2013"
#: Characters of a text in a table.
_CELL = 200


def text(value: object, limit: int = _CELL) -> str:
    """In one line, cut at `limit`; a dash for nothing."""
    if value is None or value == "":
        return NOTHING
    return cut(printable(str(value)), limit)


def block(value: object, limit: int = 20_000) -> str:
    """A text of several lines, each as `text` has it."""
    lines = str("" if value is None else value)[:limit].split("\n")
    return "\n".join(printable(line) for line in lines)


def number(value: float | None, digits: int = 0) -> str:
    """`12,345`; a dash for None."""
    return NOTHING if value is None else f"{value:,.{digits}f}"


def seconds(value: float | None) -> str:
    """How long: `12 ms`, `3.4 s`, `5m 2s`, `3h 10m`, `2d 4h`."""
    if value is None:
        return NOTHING
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    whole = int(value)
    for unit, size, below, part in (("m", 60, "s", 1), ("h", 3600, "m", 60), ("d", 86400, "h", 3600)):
        if whole < size * (60 if unit == "m" else 24) or unit == "d":
            left = whole % size // part
            return f"{whole // size:,}{unit}" + (f" {left}{below}" if left else "")
    return ""


def moment(value: str | None, relative: bool = True) -> Any:
    """A time as its own element: its script shows it in the reader's zone, or how long ago it is."""
    from markupsafe import Markup

    if not value:
        return NOTHING
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return text(value)
    shown = f"{at:%Y-%m-%d %H:%M:%S}"
    kind = Markup(" data-ago") if relative else Markup("")
    return Markup('<time datetime="{}"{}>{}</time>').format(value, kind, shown)


def size(value: float | None) -> str:
    """Bytes: `1.4 MB`."""
    if value is None:
        return NOTHING
    for unit in ("B", "KB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} GB"


def plural(count: int, one: str, many: str = "") -> str:
    """`1 job`, `2 jobs`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


FILTERS: dict[str, Callable[..., Any]] = {
    "text": text,
    "block": block,
    "number": number,
    "seconds": seconds,
    "moment": moment,
    "size": size,
    "plural": plural,
}
GLOBALS: dict[str, Any] = {"sparkline": charts.sparkline, "lines": charts.lines, "state_lights": LIGHTS}
