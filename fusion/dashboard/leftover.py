"""Find the fields of a view that a page's template does not place. The page lists them under "All fields"."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from fusion.views.base import View, described

if TYPE_CHECKING:
    from jinja2 import Environment

#: Fields that change with every read, so that a page with them would never stay the same.
_MOVING = frozenset({"last_updated", "heartbeat_age", "oldest_age"})


class Leftover(NamedTuple):
    """A field that the template does not place."""

    name: str
    meaning: str
    value: str


def leftovers(environment: Environment, template: str, noun: str, kind: type[View], shown: Mapping[str, Any]) -> list[Leftover]:
    """Return the fields of `shown`, the JSON of a view of this kind, that the template does not mention as `noun.name`."""
    placed = _placed(environment, template, noun)
    return [
        Leftover(one.name, described(one), _value(shown[one.name]))
        for one in kind.FIELDS
        if one.name in shown and one.name not in placed and one.name not in _MOVING
    ]


@cache
def _placed(environment: Environment, template: str, noun: str) -> frozenset[str]:
    assert environment.loader is not None
    source, _, _ = environment.loader.get_source(environment, template)
    return frozenset(re.findall(rf'\b{noun}(?:\.get\("|\["|\.)(\w+)', source))


def _value(value: Any) -> str:
    if value is None:
        return "\u2013"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
