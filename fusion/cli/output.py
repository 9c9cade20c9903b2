"""All printing of the command line. Names, descriptions, reasons and errors come from Redis, where strangers may have written them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fusion.views.base import View

#: A random mark in each of our own colours until it is printed. Colour codes in strangers' texts lack it and are made visible as text.
_MARK = f"{10**9 + int.from_bytes(os.urandom(4))};"
_COLOUR = re.compile(rf"(\x1b\[{_MARK}\d+m)")


def styled(text: str, fg: str | None) -> str:
    """Style a text for `echo`, like `click.style`."""
    if fg is None:
        return text
    begin, end = (code.replace("\x1b[", f"\x1b[{_MARK}") for code in click.style("|", fg=fg).split("|"))
    return begin + text + end


def inverse(text: str) -> str:
    """Return the text, without its colours, in exchanged colours of letters and background: a chosen line."""
    begin, end = (code.replace("\x1b[", f"\x1b[{_MARK}") for code in click.style("|", reverse=True).split("|"))
    return begin + click.unstyle(text) + end


def drawn(text: str) -> str:
    """Return the text with our own colours as terminal codes."""
    return text.replace(f"\x1b[{_MARK}", "\x1b[")


def shown(text: str, limit: int = 1000) -> str:
    """Return a text in one line, cut to about `limit`. Terminal codes in it are made visible, except for `styled` colours."""
    from fusion.kernel.redaction import printable

    if text.isprintable() and len(text) <= limit:
        return text
    parts = _COLOUR.split(text)
    return "".join(part if i % 2 else printable(part[:limit]) for i, part in enumerate(parts))


def lines(text: str) -> str:
    """Return a text with each line made safe by `shown`."""
    return "\n".join(shown(line, len(line)) for line in text.split("\n"))


#: The list that collects the output of `echo` in place of printing it.
_kept: list[str] | None = None


@contextmanager
def kept() -> Iterator[list[str]]:
    """Collect the output of the block, of stderr too, in place of printing it."""
    global _kept
    before, _kept = _kept, []
    try:
        yield _kept
    finally:
        _kept = before


def collects() -> bool:
    """Return True in a block of `kept`."""
    return _kept is not None


def echo_json(shown: View, **more: object) -> None:
    """Print a view as one JSON document, with `schema` before its fields and `more` behind."""
    import json

    from fusion.views.base import EVERYONE, to_json

    echo(json.dumps({"schema": 1, **to_json(shown, EVERYONE), **more}))


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text made safe by `lines`, with `click.echo`. Nothing else in the command line prints."""
    if _kept is not None:
        _kept.append(lines(text))
    else:
        click.echo(drawn(lines(text)), err=err, nl=nl)
