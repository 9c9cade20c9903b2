"""Each view, for each scope: no text comes through but by a field whose class allows it."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import chain, combinations
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

import fusion.views
from fusion.views.base import EVERYONE, Shown, Unmasked, View, definition, to_json

SCOPES = [frozenset(some) for some in chain.from_iterable(combinations(sorted(EVERYONE), n) for n in range(len(EVERYONE) + 1))]


def every_view() -> list[type[View]]:
    for module in pkgutil.iter_modules(fusion.views.__path__, "fusion.views."):
        importlib.import_module(module.name)

    def below(kind: type[View]) -> Iterator[type[View]]:
        for one in kind.__subclasses__():
            if one.__module__.startswith("fusion.views.") and one.FIELDS:
                yield one
            yield from below(one)

    return sorted({f"{one.__module__}.{one.__name__}": one for one in below(View)}.items())  # type: ignore[return-value]


VIEWS: dict[str, type[View]] = dict(every_view())  # type: ignore[arg-type]


def made(kind: Any, mark: str, marks: dict[str, list[Shown]], path: list[Shown]) -> Any:
    """A value of this type, each text in it a mark of its own. `marks`: by which fields each can come out."""
    if isinstance(kind, type) and issubclass(kind, View):
        hints = get_type_hints(kind)
        return kind(
            **{one.attribute: made(hints[one.attribute], f"{mark}-{one.attribute}", marks, [*path, one]) for one in kind.FIELDS}
        )
    origin, args = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        return made(next(one for one in args if one is not NoneType), mark, marks, path)
    if origin is Literal:
        return args[0]
    if origin in (list, tuple):
        return [made(args[0], f"{mark}-0", marks, path)]
    if origin is dict:
        return {"n": made(args[1], f"{mark}-n", marks, path)}
    if kind in (str, Any):
        text = f"https://joe:{mark}@h.example/{mark}?password={mark}~"
        marks[mark] = path
        return Unmasked(text) if path and path[-1].holds == "masked" and path[-1].scopes else text
    return {int: 7, float: 1.5, bool: True, datetime: datetime(2030, 1, 31, tzinfo=timezone.utc)}[kind]


def may_come(path: list[Shown], scopes: frozenset[str]) -> bool:
    """Whether a mark may be seen as it is."""
    for one in path:
        if one.holds == "stored" or (one.holds == "details" and not one.scopes & scopes):
            return False
        if one.how is not None and not (one.holds == "masked" and one.scopes & scopes):
            return False
    return True


@pytest.mark.parametrize("scopes", SCOPES, ids=lambda scopes: "+".join(sorted(scopes)) or "nobody")
@pytest.mark.parametrize("name", VIEWS)
def test_no_text_comes_through_but_where_its_class_allows_it(name: str, scopes: frozenset[str]) -> None:
    kind = VIEWS[name]
    marks: dict[str, list[Shown]] = {}
    said = json.dumps(to_json(made(kind, "zq", marks, []), scopes))
    for mark, path in marks.items():
        assert (f"password={mark}~" in said) == may_come(path, scopes), f"{name}: {'.'.join(one.name for one in path)}"


@pytest.mark.parametrize("name", VIEWS)
def test_the_json_of_each_view_fits_its_schema(name: str) -> None:
    validator = pytest.importorskip("openapi_schema_validator")
    kind = VIEWS[name]
    schemas = {one.SCHEMA: definition(one) for one in VIEWS.values() if one.SCHEMA}
    check = validator.OAS31Validator(
        {**definition(kind), "components": {"schemas": schemas}}, format_checker=validator.oas31_format_checker
    )
    for scopes in SCOPES:
        assert [error.message for error in check.iter_errors(to_json(made(kind, "zq", {}, []), scopes))] == []


def test_no_two_views_have_one_name() -> None:
    assert len(VIEWS) == len({one.__name__ for one in VIEWS.values()}) > 3
    named = [one.SCHEMA for one in VIEWS.values() if one.SCHEMA]
    assert len(named) == len(set(named))
