"""Values with wildcards: `*` for any text, `?` for any character; behind a backslash each stands for itself."""

from __future__ import annotations

import re
from functools import lru_cache

#: What a backslash takes its meaning from.
SPECIAL = "*?\\"


def literal(source: str) -> str | None:
    """The text that the value stands for; None if it has a wildcard."""
    if not any(char in source for char in SPECIAL):
        return source
    found, chars = "", iter(source)
    for char in chars:
        if char in "*?":
            return None
        found += next(chars, "") if char == "\\" else char
    return found


def escaped(text: str) -> str:
    """The value that stands for this text and no other."""
    return "".join("\\" + char if char in SPECIAL else char for char in text)


@lru_cache(maxsize=512)
def compiled(source: str) -> re.Pattern[str]:
    """The whole text that the value stands for. It takes time that grows with the text alone, however many wildcards there are."""
    parts, found, chars = [""], [], iter(source)
    for char in chars:
        if char == "*":
            parts.append("")
        else:
            parts[-1] += "." if char == "?" else re.escape(next(chars, "") if char == "\\" else char)
    first, *rest = parts
    if not rest:
        return re.compile(first + r"\Z", re.DOTALL)
    found = [f"(?>.*?{part})" for part in rest[:-1] if part]  # the first place will do: never tried again
    return re.compile(first + "".join(found) + f".*{rest[-1]}" + r"\Z", re.DOTALL)
