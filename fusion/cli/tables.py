"""Tables that fit a terminal: columns as wide as they must be, and where there is no room those of texts give way."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence

import click

from fusion.cli.output import shown

#: What such a column keeps at least, and what stands for the rest of its text.
_LEAST, _MORE = 6, "…"
_GAP = "  "
#: Heads of columns that are cut only if all others were: half an id can not be typed, of half a time it is the wrong half.
_KEPT = frozenset(("ID", "JOB", "EXAMPLE", "STATE", "STATUS", "SETTING", "DUE", "GROUP", "BY HOUR", "AT", "DELETED", ""))


def room() -> int | None:
    """Columns of the terminal; None where there is none: programs that read want all of a text. One stays free: where a line is drawn over an older
    one, erasing the rest of it would take the last character."""
    return max(20, shutil.get_terminal_size().columns - 1) if sys.stdout.isatty() else None


def cells(text: str) -> int:
    """How many columns of a terminal a text takes, colours left out: a Chinese character takes two, an accent of its own none."""
    bare = click.unstyle(text)
    if bare.isascii():
        return len(bare)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1 for char in bare
    )


def cut(text: str, columns: int) -> str:
    """`text` in no more columns; one that is cut ends with an ellipsis, and loses its colours."""
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
    """Words in lines that fit the terminal, those after the first indented, in the first so many columns being `taken`; one line where there is
    no terminal."""
    text = shown(text, len(text))  # a line end that somebody wrote into Redis would begin a line of its own
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


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = (), *, within: int | None = -1
) -> list[str]:
    """Columns as wide as they must be; those numbered in `right`, of figures, are aligned there. If that is more than there is room for, or than
    `within` says, the widest columns of texts give way and are cut: ids, which are typed again, and states come last."""
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
