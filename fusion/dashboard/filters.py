"""Filters of the templates. All texts come from Redis, where strangers may have written them. So they are escaped, and characters that control
a terminal, the text direction or a copied command are made visible."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from fusion.kernel.redaction import cut, printable
from fusion.kernel.states import LIGHTS
from fusion.store.query.lexer import Term
from fusion.store.query.patterns import escaped

#: Shown for an empty value.
NOTHING = "\u2013"
#: Most characters of a text in a table.
_CELL = 200


def text(value: object, limit: int = _CELL) -> str:
    """Return a text in one line, cut at `limit`; a dash if it is empty."""
    if value is None or value == "":
        return NOTHING
    return cut(printable(str(value)), limit)


def block(value: object, limit: int = 20_000) -> str:
    """Return a text of several lines, each treated like in `text`."""
    lines = str("" if value is None else value)[:limit].split("\n")
    return "\n".join(printable(line) for line in lines)


def number(value: float | None, digits: int = 0) -> str:
    """Return a number like `12,345`; a dash for None."""
    return NOTHING if value is None else f"{value:,.{digits}f}"


def seconds(value: float | None) -> str:
    """Return a duration: `12 ms`, `3.4 s`, `5m 2s`, `3h 10m`, `2d 4h`."""
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
    """Return a time as an element that a script shows in the viewer's zone, or relative to now."""
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
    """Return a number of bytes like `1.4 MB`."""
    if value is None:
        return NOTHING
    for unit in ("B", "KB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} GB"


def plural(count: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 job`, `2 jobs`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def term(name: str, value: str) -> str:
    """Return the query term `field:value`."""
    return Term(name, (escaped(value),)).text


FILTERS: dict[str, Callable[..., Any]] = {
    "text": text,
    "block": block,
    "number": number,
    "seconds": seconds,
    "moment": moment,
    "size": size,
    "plural": plural,
}
GLOBALS: dict[str, Any] = {"state_lights": LIGHTS}
