"""JSON as a tree that opens and closes, and the lines in which two texts differ."""

from __future__ import annotations

import json
from difflib import unified_diff
from typing import Any, NamedTuple

from fusion.dashboard.filters import block, plural, text

#: Most values of a tree; most levels, and most entries of one level that are open at first; most characters of a value.
_VALUES, _OPEN, _FEW, _LONGEST = 1000, 3, 20, 1000
#: Most lines of a text that is compared: it takes time by their square.
_LINES = 2000


def pretty(value: str | None) -> str:
    """Return JSON on several lines. Other text, such as JSON that was cut, is returned unchanged."""
    try:
        return json.dumps(json.loads(value or ""), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return value or ""


def tree(value: str | None) -> Any:
    """Return JSON as HTML: nested lists that open and close. Other text, and JSON of very many values, is returned as it is."""
    from markupsafe import Markup

    try:
        found = json.loads(value or "")
        if not isinstance(found, (dict, list)) or _count(found) > _VALUES:
            raise ValueError
    except (ValueError, RecursionError):
        return Markup('<pre tabindex="0">{}</pre>').format(block(pretty(value)))
    return Markup('<div class="tree">{}</div>').format(_entries(found, 1))


def _count(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_count, inner))


def _entries(value: dict[str, Any] | list[Any], level: int) -> Any:
    from markupsafe import Markup

    named = value.items() if isinstance(value, dict) else enumerate(value)
    rows = [Markup("<li>{}</li>").format(_entry(str(name), one, level)) for name, one in named]
    return Markup("<ul>{}</ul>").format(Markup("").join(rows)) if rows else Markup('<p class="quiet">empty</p>')


def _entry(name: str, value: Any, level: int) -> Any:
    from markupsafe import Markup

    label = Markup('<span class="quiet">{}</span>').format(text(name))
    if isinstance(value, (dict, list)) and value:
        is_open = Markup(" open") if level < _OPEN and len(value) <= _FEW else ""
        many = plural(len(value), "entry", "entries")
        return Markup('<details{}><summary>{} <span class="quiet">{}</span></summary>{}</details>').format(
            is_open, label, many, _entries(value, level + 1)
        )
    return Markup("{} <code>{}</code>").format(label, text(json.dumps(value, ensure_ascii=False), _LONGEST))


class DiffLine(NamedTuple):
    """A line of a difference: `kind` is `+`, `-` or a blank."""

    kind: str
    text: str


def difference(before: str, after: str) -> list[DiffLine] | None:
    """Return the lines in which two texts differ, each with the lines around it; empty if they are alike, None if they are too long."""
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > _LINES:
        return None
    lines = [one for one in unified_diff(old, new, n=2, lineterm="") if not one.startswith(("---", "+++"))]
    return [DiffLine("", "…") if one.startswith("@@") else DiffLine(one[0], text(one[1:] or " ", _LONGEST)) for one in lines][1:]
