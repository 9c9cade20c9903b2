"""Values with wildcards: `*` for any text, `?` for any character; behind a backslash each stands for itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from functools import lru_cache

#: What a backslash takes its meaning from.
SPECIAL = "*?\\"
#: Characters of a text that a value with wildcards is compared with: of a longer one its beginning is.
SEEN = 500


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


def fits(wildcards: Iterable[re.Pattern[str]], text: str) -> bool:
    """Tell if one of them stands for the text, or for the beginning of a long one."""
    return any(one.match(text, 0, SEEN) for one in wildcards)


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


@lru_cache(maxsize=512)
def shell(source: str) -> re.Pattern[str]:
    """A wildcard as shells read it, with `[...]` too. `fnmatch` keeps tens of thousands of them, which any caller could fill."""
    return re.compile(translate(source))
