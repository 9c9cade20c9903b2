"""Views: one dataclass for each thing that is shown. Its JSON and its JSON Schema follow from its fields.

Every field declares what it holds: `public`, `masked`, `details` or `stored`. A class with an undeclared field raises TypeError on import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field
from datetime import datetime
from inspect import get_annotations
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

from fusion.kernel.timeutil import to_iso

_Class = TypeVar("_Class", bound=type)
_KEY = "fusion.view"
_REF = "#/components/schemas/"
_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    datetime: {"type": "string", "format": "date-time"},
    Any: {},
}
_SCALARS = frozenset({str, int, float, bool, NoneType})
#: For answers that show no details.
NOBODY: frozenset[str] = frozenset()
#: For the command line, whose users can read Redis anyway.
EVERYONE: frozenset[str] = frozenset({"read", "operate", "admin"})


def _text(stored: bytes | None) -> str:
    return (stored or b"").decode("utf-8", "replace")


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


#: The value of a field that is left out of this answer.
ABSENT: Any = _Absent()


class Unmasked(str):
    """A text that a masked field shows as it is, to the scopes in the field's `unless`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Shown:
    """The description of one field of a view. `name`: its name in JSON. `meaning`: one sentence. `unit`: of a number; empty for a count.

    `how`: masks the value. `scopes`: the scopes that see details, or see a masked field unmasked; empty: all. `record`: the field of the
    stored record that it shows unchanged, if any. `column`: its heading in the table of the command line; None: it has no column there.
    `short`: the heading where there is little room, if it is another one.
    """

    attribute: str
    name: str
    holds: Literal["public", "masked", "details", "stored"]
    meaning: str
    unit: str
    how: Callable[[Any], Any] | None
    scopes: frozenset[str]
    optional: bool
    record: str
    column: str | None = None
    short: str = ""
    is_number: bool = False


class View:
    """The base of all views."""

    #: All fields, in the order of their declaration.
    FIELDS: ClassVar[tuple[Shown, ...]] = ()
    #: The name of its schema in OpenAPI; empty: it is written inside the schemas that use it.
    SCHEMA: ClassVar[str] = ""

    @classmethod
    def records(cls) -> tuple[str, ...]:
        """Return the fields of the stored record that this view shows unchanged."""
        return tuple(one.record for one in cls.FIELDS if one.record)

    @classmethod
    def recorded(cls, row: Mapping[str, bytes]) -> dict[str, Any]:
        """Take these fields from a record, as text; None for a missing field."""
        return {one.attribute: _text(row.get(one.record)) or None for one in cls.FIELDS if one.record}


def public(
    meaning: str,
    *,
    unit: str = "",
    name: str = "",
    default: Any = MISSING,
    record: str = "",
    column: str | None = None,
    short: str = "",
) -> Any:
    """Declare a field for everyone who may see the thing: an id, a name, a state, a time, a count. With `default=ABSENT` it may be missing."""
    return _declared("public", meaning, unit, name, default=default, record=record, column=column, short=short)


def masked(
    meaning: str,
    how: Callable[[Any], Any],
    *,
    unless: Iterable[str] = (),
    name: str = "",
    default: Any = MISSING,
    record: str = "",
    column: str | None = None,
) -> Any:
    """Declare a field whose value is replaced by `how(value)`. Those with a scope of `unless` see an `Unmasked` text as it is."""
    return _declared("masked", meaning, "", name, how=how, scopes=unless, default=default, record=record, column=column)


def details(
    meaning: str,
    *,
    record: str = "",
    scopes: Iterable[str] = ("operate",),
    how: Callable[[Any], Any] | None = None,
    unit: str = "",
    name: str = "",
    column: str | None = None,
) -> Any:
    """Declare a field that only these scopes see. It is missing for all others, and in answers to requests that did not ask for it."""
    return _declared("details", meaning, unit, name, how=how, scopes=scopes, default=ABSENT, record=record, column=column)


def stored(meaning: str) -> Any:
    """Declare a field that is never shown."""
    return _declared("stored", meaning, "", "", default=ABSENT)


def _declared(
    holds: str,
    meaning: str,
    unit: str,
    name: str,
    *,
    how: Callable[[Any], Any] | None = None,
    scopes: Iterable[str] = (),
    default: Any = MISSING,
    record: str = "",
    column: str | None = None,
    short: str = "",
) -> Any:
    if not meaning.endswith("."):
        raise TypeError(f"{meaning!r}: say what the field means, in a sentence")
    facts = {
        "name": name,
        "holds": holds,
        "meaning": meaning,
        "unit": unit,
        "how": how,
        "scopes": frozenset(scopes),
        "record": record,
        "column": column,
        "short": short,
    }
    return field(default=default, metadata={_KEY: facts | {"optional": default is ABSENT}})


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(public, masked, details, stored))
def view(cls: _Class) -> _Class:
    """Make a view with its own schema in OpenAPI, named like the class without `View`. TypeError for an undeclared field."""
    made: _Class = _made(cls, cls.__name__.removesuffix("View"))
    return made


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(public, masked, details, stored))
def part(cls: _Class) -> _Class:
    """Make a view that is only used inside other views."""
    made: _Class = _made(cls, "")
    return made


def _made(cls: Any, name: str) -> Any:
    own = []
    for attribute, kind in get_annotations(cls).items():
        declared = cls.__dict__.get(attribute)
        if str(kind).startswith("ClassVar"):
            continue
        if not isinstance(declared, Field) or _KEY not in declared.metadata:
            raise TypeError(f"{cls.__name__}.{attribute}: declare what it holds with public, masked, details or stored")
        facts = dict(declared.metadata[_KEY])
        number = str(kind).removesuffix(" | None") in ("int", "float")
        own.append(Shown(attribute=attribute, is_number=number, **(facts | {"name": facts["name"] or attribute})))
    fields = {one.attribute: one for base in reversed(cls.__mro__[1:]) for one in base.__dict__.get("FIELDS", ())}
    cls.FIELDS = tuple((fields | {one.attribute: one for one in own}).values())
    cls.SCHEMA = name
    hidden = tuple((one.attribute, one.how) for one in cls.FIELDS if one.how is not None)
    if hidden:
        cls.__post_init__ = _masking(hidden)
    return dataclass(frozen=True, kw_only=True)(cls)


def _masking(hidden: tuple[tuple[str, Callable[[Any], Any]], ...]) -> Callable[[Any], None]:
    """Return a `__post_init__` that masks: a view never holds the unmasked values."""

    def mask(self: Any) -> None:
        for attribute, how in hidden:
            value = getattr(self, attribute)
            if value is not None and value is not ABSENT and not isinstance(value, Unmasked):
                object.__setattr__(self, attribute, how(value))

    return mask


def to_json(value: Any, scopes: frozenset[str] = NOBODY) -> Any:
    """Return a view, or a value in one, as a JSON value. `scopes`: those of a caller who asked for details and may see them."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is datetime:
        return to_iso(value)
    if issubclass(kind, View):
        return _fields(value, scopes)
    if isinstance(value, Mapping):
        return {str(name): to_json(one, scopes) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(one, scopes) for one in value]
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"{kind.__name__} has no form in JSON")


def _fields(of: View, scopes: frozenset[str]) -> dict[str, Any]:
    """Return the fields of a view that these scopes may see."""
    document = {}
    for one in of.FIELDS:
        value = getattr(of, one.attribute)
        if value is ABSENT or one.holds == "stored" or (one.holds == "details" and not one.scopes & scopes):
            continue
        if type(value) is Unmasked and one.holds == "masked" and one.how is not None and not one.scopes & scopes:
            value = one.how(str(value))
        document[one.name] = to_json(value, scopes)
    return document


def schema(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of a field's type; for a view with a name, a reference to its schema."""
    if isinstance(kind, type) and issubclass(kind, View):
        return {"$ref": _REF + kind.SCHEMA} if kind.SCHEMA else definition(kind)
    origin, args = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        kinds = [schema(arg) for arg in args if arg is not NoneType]
        if NoneType not in args:
            return {"anyOf": kinds}
        if len(kinds) == 1 and isinstance(kinds[0].get("type"), str) and "enum" not in kinds[0]:
            return {**kinds[0], "type": [kinds[0]["type"], "null"]}
        return {"anyOf": [*kinds, {"type": "null"}]}
    if origin is Literal:
        return {"type": "string", "enum": list(args)}
    if origin in (list, tuple):
        return {"type": "array", "items": schema(args[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema(args[1])}
    return dict(_PLAIN[kind])


def definition(kind: type[View]) -> dict[str, Any]:
    """Return the JSON Schema of a view: its fields and no others."""
    hints, shown = get_type_hints(kind), [one for one in kind.FIELDS if one.holds != "stored"]
    return {
        "type": "object",
        "properties": {one.name: schema(hints[one.attribute]) | {"description": described(one)} for one in shown},
        "required": sorted(one.name for one in shown if not one.optional),
        "additionalProperties": False,
    }


def described(one: Shown) -> str:
    """Return the meaning of a field, with its unit and the scopes that see it."""
    unit = f" In {one.unit}." if one.unit else ""
    who = f" Only for {' and '.join(sorted(one.scopes))}." if one.holds == "details" else ""
    return one.meaning + unit + who


def within(kind: Any) -> Iterator[type[View]]:
    """Yield the named views that a type contains, itself included."""
    if not (isinstance(kind, type) and issubclass(kind, View)):
        for arg in get_args(kind):
            yield from within(arg)
        return
    if kind.SCHEMA:
        yield kind
    hints = get_type_hints(kind)
    for one in kind.FIELDS:
        yield from within(hints[one.attribute])


def columns(kind: type[View]) -> Iterator[tuple[str, Shown]]:
    """Yield the fields of a view that declare a column, and those of a view in it: `by_priority.high`."""
    hints = get_type_hints(kind)
    for one in kind.FIELDS:
        if one.holds == "stored":
            continue
        if one.column is not None:
            yield one.attribute, one
        elif inner := _view_in(hints[one.attribute]):
            yield from ((f"{one.attribute}.{name}", shown) for name, shown in columns(inner))


def _view_in(kind: Any) -> type[View] | None:
    """Return the view that a field of this type holds; None if it holds something else or a list."""
    kinds = get_args(kind) if get_origin(kind) in (UnionType, Union) else (kind,)
    return next((one for one in kinds if get_origin(one) is None and isinstance(one, type) and issubclass(one, View)), None)


def age(at: datetime, moment: datetime | None) -> float | None:
    """Return the seconds from a moment until `at`, at least 0, because two clocks differ by some milliseconds."""
    return None if moment is None else max(0.0, (at - moment).total_seconds())
