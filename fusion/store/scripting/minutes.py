"""The present minute, and how times in it begin. A caller tells a script both by its own clock, and the script writes the text out only if it is
another minute by the server's: that takes a server longer than any command."""

from __future__ import annotations

import time
from typing import NamedTuple


class Minute(NamedTuple):
    """A minute: its number, from 1970 on; that and its text; and both as words of a command."""

    number: float
    texts: tuple[str, str]
    encoded: bytes


#: The one that was wanted last.
kept = Minute(-1.0, ("", ""), b"")


def present() -> Minute:
    """Return the present minute, and keep it."""
    global kept
    number = time.time() // 60
    if number != kept.number:
        texts = str(int(number)), time.strftime("%Y-%m-%dT%H:%M:", time.gmtime(60 * number))
        kept = Minute(number, texts, "".join(f"${len(text)}\r\n{text}\r\n" for text in texts).encode())
    return kept


def minute() -> tuple[str, str]:
    """Return the present minute's number and its text."""
    return present().texts
