"""Arguments that were shown masked, and come back edited. Unchanged parts keep their stored values; edited parts are new.

Works on plain JSON: values of types that JSON lacks stay tagged as they are stored, and no code is imported for them.
"""

from __future__ import annotations

import json
import re
from typing import Any

from fusion.exceptions import OptionError
from fusion.kernel.redaction import MASK

_TAG = "__fusion__"
_LISTS = ("tuple", "set", "frozenset")
#: What stands for a value that is not shown: more of a list, a value of a type that JSON lacks, or digits.
_STANDS_FOR = re.compile(r"\.\.\.(?: \d+ more)?|[\[{]\d+ more[\]}]|\[[\w ]{1,20}\]|\*+")
_MORE = re.compile(r"(?:\.\.\. )?(\d+) more")
_REST = "..."


def restored(name: str, given: Any, shown: Any, stored: Any) -> Any:
    """Return the value that `given` means, where `shown` was shown in place of `stored`. `name`: its place, for errors. OptionError for a
    mask that stands for nothing there."""
    if _same(given, shown):
        return stored
    if isinstance(given, dict) and isinstance(shown, dict) and isinstance(stored, dict) and _TAG not in stored:
        return _object(name, given, shown, stored)
    if isinstance(given, list) and isinstance(shown, list):
        kind, items = _items(stored)
        if items is not None:
            found = _list(name, given, shown, items)
            return {_TAG: [kind, found]} if kind else found
    return _fresh(name, given, masked=isinstance(shown, str) and not _same(shown, stored))


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _items(stored: Any) -> tuple[str, list[Any] | None]:
    if isinstance(stored, list):
        return "", stored
    tagged = stored.get(_TAG) if isinstance(stored, dict) else None
    if isinstance(tagged, list) and len(tagged) == 2 and tagged[0] in _LISTS and isinstance(tagged[1], list):
        return tagged[0], tagged[1]
    return "", None


def _list(name: str, given: list[Any], shown: list[Any], stored: list[Any]) -> list[Any]:
    left = 0  # how many at the end are only shown as a number
    if len(shown) <= len(stored) and shown and isinstance(shown[-1], str) and (more := _MORE.fullmatch(shown[-1])):
        left = int(more[1]) if len(shown) - 1 + int(more[1]) == len(stored) else 0
    told = len(shown) - bool(left)
    found: list[Any] = []
    for at, value in enumerate(given):
        where = f"{name}[{at}]"
        if left and value == shown[-1] and at == len(given) - 1:
            return found + stored[told:]
        found.append(restored(where, value, shown[at], stored[at]) if at < min(told, len(stored)) else _fresh(where, value))
    return found


def _object(name: str, given: dict[str, Any], shown: dict[str, Any], stored: dict[str, Any]) -> dict[str, Any]:
    rest = shown.get(_REST)
    more = _MORE.fullmatch(rest) if isinstance(rest, str) else None
    names = [key for key in shown if not (more and key == _REST)]
    if len(names) + (int(more[1]) if more else 0) != len(stored):
        raise OptionError(name, "some of its names look alike when they are masked; give all of it anew, without masks")
    keys = dict(zip(names, stored, strict=False))
    found: dict[str, Any] = {}
    for key, value in given.items():
        where = f"{name}.{key[:40]}"
        if key in keys:
            found[keys[key]] = restored(where, value, shown[key], stored[keys[key]])
        elif more and key == _REST and value == rest:
            found |= {one: stored[one] for one in list(stored)[len(names) :]}
        else:
            found[_fresh(where, key)] = _fresh(where, value)
    return found


def _fresh(name: str, value: Any, masked: bool = False) -> Any:
    """Return a new value. `masked`: its place was masked, so stars in it may stand for the old value."""
    if isinstance(value, str):
        if MASK in value or _STANDS_FOR.fullmatch(value) or (masked and ("*" in value or value.endswith(_REST))):
            raise OptionError(
                name, "it holds a mask, which stands for nothing there; give the value itself, or leave what was shown as it was"
            )
        return value
    if isinstance(value, list):
        return [_fresh(f"{name}[{at}]", one) for at, one in enumerate(value)]
    if isinstance(value, dict):
        if _TAG in value:
            raise OptionError(name, f"the name {_TAG} is Fusion's own; choose another")
        return {_fresh(name, key): _fresh(f"{name}.{key[:40]}", one) for key, one in value.items()}
    return value
