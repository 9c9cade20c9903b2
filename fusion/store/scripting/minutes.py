"""The present minute, and how times in it begin. A caller tells a script both by its own clock, and the script writes the text out only if it is
another minute by the server's: that takes a server longer than any command."""

from __future__ import annotations

import time

_known: tuple[str, str, bytes] = ("", "", b"")
_number = -1


def minute() -> tuple[str, str]:
    """Return the minute's number, from 1970 on, and its text."""
    return _present()[:2]


def encoded() -> bytes:
    """Return both as words of a command."""
    return _present()[2]


def _present() -> tuple[str, str, bytes]:
    global _known, _number
    number = int(time.time() // 60)
    if number != _number:
        texts = str(number), time.strftime("%Y-%m-%dT%H:%M:", time.gmtime(60 * number))
        _known = (*texts, "".join(f"${len(text)}\r\n{text}\r\n" for text in texts).encode())
        _number = number
    return _known
