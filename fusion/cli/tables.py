"""Tables that fit a terminal: columns are as wide as needed; if there is no room, text columns are cut."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import click

from fusion.cli.context import seconds
from fusion.cli.output import shown
from fusion.cli.times import told
from fusion.views.base import ABSENT, Shown, View, columns

_View = TypeVar("_View", bound=View)

#: The least width of a cut column, and the mark for the rest of its text.
_LEAST, _MORE = 6, "…"
_GAP = "  "
#: Heads of columns that are cut last: half an id or half a time is useless.
_KEPT = frozenset(("ID", "JOB", "EXAMPLE", "STATE", "STATUS", "SETTING", "DUE", "GROUP", "BY HOUR", "AT", "DELETED", ""))


def room() -> int | None:
    """Return the usable columns of the terminal; None without one, since programs need the whole text. The last column stays free, because erasing
    the rest of an older line would delete a character there."""
    return max(20, shutil.get_terminal_size().columns - 1) if sys.stdout.isatty() else None


def cells(text: str) -> int:
    """Return how many columns a text takes on a terminal, without its colours. A Chinese character takes two, a combining accent none."""
    bare = click.unstyle(text)
    if bare.isascii():
        return len(bare)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1 for char in bare
    )


def cut(text: str, columns: int) -> str:
    """Return `text` cut to these columns. A cut text ends with an ellipsis and loses its colours."""
    if cells(text) <= columns:
        return text
    taken, kept = 0, ""
    for char in click.unstyle(text):
        taken += cells(char)
        if taken > columns - 1:
            break
        kept += char
    return kept + _MORE


def folded(text: str, indent: int = 0, *, taken: int = 0) -> list[str]:
    """Return the text in lines that fit the terminal. Lines after the first are indented; on the first, `taken` columns are already used. Without
    a terminal, return one line."""
    text = shown(text, len(text))  # a line end in a text from Redis would start a new line
    limit, lines, line = room(), list[str](), ""
    if limit is None:
        return [text.lstrip(" ")]
    for word in text.split(" "):
        if line and taken + cells(line) + 1 + cells(word) > limit:
            lines.append(line)
            line, taken = " " * indent + word, 0
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]


def table_of(
    kind: type[_View],
    views: Sequence[_View],
    at: datetime | None = None,
    *,
    order: Sequence[str] = (),
    only: bool = False,
    without: Iterable[str] = (),
    cells: Mapping[str, Callable[[_View], str]] | None = None,
    left: Iterable[str] = (),
    right: Iterable[str] = (),
    short: bool = False,
    within: int | None = -1,
) -> list[str]:
    """Return a table of views: the fields that declare a `column`. Those named in `order` come first, the others in the order of the class.

    `only`: no others. `without`: fields that are left out. A field of a view in the view is named like `by_priority.high`. A cell follows
    from the value and the field's unit; `cells` has functions that make others. Numbers are aligned right, except those in `left`; so are
    those in `right`. With `at`, now, moments are shown as `5 min ago`. `short`: with short headings. `within`: the width of the table.
    """
    made, to_the_left, to_the_right, out = cells or {}, set(left), set(right), set(without)
    fields = [(name, one) for name, one in columns(kind) if name not in out and (not only or name in order)]
    fields.sort(key=lambda field: order.index(field[0]) if field[0] in order else len(order))

    def cell(of: _View, name: str, one: Shown) -> str:
        return made[name](of) if name in made else _cell(_value(of, name), one.unit, at)

    aligned = [i for i, (name, one) in enumerate(fields) if name in to_the_right or (one.is_number and name not in to_the_left)]
    heads = [(short and one.short) or one.column or "" for _, one in fields]
    return table(heads, [[cell(of, name, one) for name, one in fields] for of in views], aligned, within=within)


def _value(of: Any, name: str) -> Any:
    """Return the value of a field, or of a field of a view in it; None if there is no such view."""
    for attribute in name.split("."):
        of = None if of is None or of is ABSENT else getattr(of, attribute)
    return of


def _cell(value: Any, unit: str, at: datetime | None) -> str:
    if value is None or value is ABSENT or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return told(value) if at is None else when(value, at)
    if unit == "seconds":
        return seconds(value)
    if unit == "bytes":
        return f"{value / 2**20:.1f} MB"
    if unit == "percent":
        return f"{value:.0f} %"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {one}" for name, one in value.items()) or "-"
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def when(moment: datetime | None, at: datetime) -> str:
    """Return a time relative to now: `5 min ago`, `in 5 min`."""
    if moment is None:
        return "-"
    ahead = (moment - at).total_seconds()
    return f"in {seconds(ahead)}" if ahead > 0 else f"{seconds(-ahead)} ago"


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = (), *, within: int | None = -1
) -> list[str]:
    """Return the rows as lines, with columns as wide as needed; columns in `right` are aligned right. If the table is wider than the terminal, or
    than `within`, the widest text columns are cut; ids, which users type again, and states are cut last."""
    lines = [list(header), *([shown(text) for text in row] for row in rows)]
    widths = [max(cells(line[i]) for line in lines) for i in range(len(header))]
    to_the_right = set(right)
    limit = room() if within == -1 else within
    if limit is not None:
        texts = [i for i in range(len(header)) if i not in to_the_right]
        kept = [i for i in texts if header[i] in _KEPT]
        for some in ([i for i in texts if i not in kept], kept):
            _shrink(widths, limit - len(_GAP) * (len(widths) - 1), [(i, max(_LEAST, cells(header[i]))) for i in some])

    def cell(text: str, i: int) -> str:
        text = cut(text, widths[i])
        blank = " " * (widths[i] - cells(text))
        return blank + text if i in to_the_right else text + blank

    return [_GAP.join(cell(text, i) for i, text in enumerate(line)).rstrip() for line in lines]


def _shrink(widths: list[int], room: int, elastic: Sequence[tuple[int, int]]) -> None:
    while sum(widths) > room:
        wide = [(widths[i], i) for i, least in elastic if widths[i] > least]
        if not wide:
            return
        widths[max(wide)[1]] -= 1
