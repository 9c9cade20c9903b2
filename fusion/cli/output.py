"""The one place that prints. Names, descriptions, reasons and errors come from Redis, where strangers may have written them."""

from __future__ import annotations

import re

import click

#: Colours as `click.style` sets and resets them; of the others, black and white, none could be told from the background.
_COLOUR = re.compile(r"(\x1b\[(?:[0-2]|[39][1-6])m)")


def shown(text: str, limit: int = 1000) -> str:
    """In one line, and without anything that steers a terminal but colours: most texts were written by others. Cut to about `limit`."""
    from fusion.redaction import printable

    if text.isprintable() and len(text) <= limit:
        return text
    parts = _COLOUR.split(text)
    return "".join(part if i % 2 else printable(part[:limit]) for i, part in enumerate(parts))


def lines(text: str) -> str:
    """Each line as `shown`."""
    return "\n".join(shown(line, len(line)) for line in text.split("\n"))


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """`click.echo` of `lines`: nothing else in the command line prints."""
    click.echo(lines(text), err=err, nl=nl)
