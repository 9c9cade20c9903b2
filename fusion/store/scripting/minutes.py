"""The present minute, and how times in it begin. A caller tells a script both by its own clock, and the script writes the text out only if it is
another minute by the server's: that takes a server longer than any command."""

from __future__ import annotations

import time

_number = -1.0
_texts, _encoded = ("", ""), b""


def minute() -> tuple[str, str]:
    """Return the minute's number, from 1970 on, and its text."""
    encoded()
    return _texts


def encoded() -> bytes:
    """Return both as words of a command."""
    global _number, _texts, _encoded
    number = time.time() // 60
    if number != _number:
        _texts = str(int(number)), time.strftime("%Y-%m-%dT%H:%M:", time.gmtime(60 * number))
        _encoded = "".join(f"${len(text)}\r\n{text}\r\n" for text in _texts).encode()
        _number = number
    return _encoded
