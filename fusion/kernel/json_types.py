"""The types that JSON lacks, as `{"__fusion__": [type, value]}`.

It imports none of their modules, so decimal and dataclasses cost nothing before a value needs them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module

from fusion.exceptions import DeserializationError, PayloadTooLarge, SerializationError
from fusion.kernel import defaults

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from typing import Any

TAG = defaults.JSON_TAG
#: Types that JSON has.
_SCALARS = frozenset({str, int, float, bool, type(None)})
#: Deepest nesting that is unpacked; the JSON itself was limited before.
_MAX_UNPACK = 400
#: Most keys of a dict, or members of a set, with the same hash. Python compares each with all of these. An attacker who chooses the numbers
#: could give many the same hash, and a megabyte of them would take minutes.
_SAME_HASH = 200


#: Subclasses are sent as their base. Not by `str(value)`, which would call an overridden `__str__`.
_BASES: dict[type, Callable[[Any], Any]] = {str: str.__str__, int: int.__int__, float: float.__float__, list: list}
#: Factories that a defaultdict may have, by name.
_FACTORIES = {kind.__name__: kind for kind in (list, dict, set, int, float, str, bool, tuple)}


def _tag(kind: str, value: Any) -> dict[str, Any]:
    return {TAG: [kind, value]}


#: Framework module -> Fusion module that registers its types; and by their tags.
_ELSEWHERE = {"django.db.models": "fusion.contrib.django.models"}
_TAGS = {"model": "django.db.models", "locked": "django.db.models"}
#: By tag: a test of a value, its encoder, its decoder.
_registered: dict[str, tuple[Callable[[Any], bool], Callable[[Any], Any], Callable[[Any], Any]]] = {}


def register_type(tag: str, is_one: Callable[[Any], bool], to_plain: Callable[[Any], Any], load: Callable[[Any], Any]) -> None:
    """Send values of a type under `tag`, in the form that `to_plain` returns. `load` restores one, and raises DeserializationError if it
    can't. After any other error of `load` the job is tried again. For integrations."""
    _registered[tag] = is_one, to_plain, load


def _registered_kind(value: Any) -> tuple[str, Callable[[Any], Any]] | None:
    _load_elsewhere()
    return next(((tag, to_plain) for tag, (is_one, to_plain, _) in _registered.items() if is_one(value)), None)


def _load_elsewhere() -> None:
    for there, home in _ELSEWHERE.items():
        if there in sys.modules and home not in sys.modules:
            try:
                import_module(home)
            except ImportError as error:
                raise SerializationError(str(error)) from None


def _registered_loader(tag: str) -> Callable[[Any], Any]:
    if tag not in _registered and tag in _TAGS:
        if _TAGS[tag] not in sys.modules:
            raise DeserializationError(f"a stored {tag} needs {_TAGS[tag]}: call django.setup() in the module the task lives in")
        try:
            import_module(_ELSEWHERE[_TAGS[tag]])
        except ImportError as error:
            raise DeserializationError(str(error)) from None
    if tag not in _registered:
        raise DeserializationError(f"unknown type {tag!r}; is the producer newer than this worker?")
    return _registered[tag][2]


def encode(value: Any, room: int) -> Any:
    """Return `value` as plain JSON types. Raises SerializationError, or PayloadTooLarge if nested deeper than `room`."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if room <= 0:
        raise PayloadTooLarge(f"nested too deeply, or it contains itself; the limit is {defaults.MAX_DEPTH} levels")
    if kind is list:
        return [item if type(item) in _SCALARS else encode(item, room - 1) for item in value]
    if kind is dict:
        return _encode_dict(value, room)
    if kind is tuple:
        return _tag("tuple", [encode(item, room - 1) for item in value])
    return _encode_other(value, room)


def _encode_dict(value: dict[Any, Any], room: int) -> Any:
    if TAG in value or any(type(key) is not str for key in value):
        return _tag("dict", [[encode(key, room - 1), encode(item, room - 1)] for key, item in value.items()])
    return {key: item if type(item) in _SCALARS else encode(item, room - 1) for key, item in value.items()}


def _is(value: Any, module: str, name: str) -> bool:
    """Return True for an instance of that class; there is none while its module is not loaded."""
    return isinstance(value, getattr(sys.modules.get(module), name, ()))


def _encode_other(value: Any, room: int) -> Any:
    if _is(value, "enum", "Enum"):
        if not value.name or type(value).__members__.get(value.name) is not value:  # a combination of flags
            return _tag("flag", [_path_of(type(value)), value.value])
        return _tag("enum", [_path_of(type(value)), value.name])
    for tag, module, name, make in _TYPES:
        base: Any = getattr(sys.modules.get(module), name, None)  # while its module is not loaded there is no such value
        if base is not None and isinstance(value, base):
            made = make(base, value)
            if type(value) is not base:
                _check(value, base, _LOADERS[tag](_BARE, made))
            return _tag(tag, made)
    if _is(value, "fusion.kernel.redaction", "Secret"):
        return _tag("secret", value.reveal())
    for kind in (set, frozenset):
        if isinstance(value, kind):
            if type(value) is not kind:
                _check(value, kind, kind(value))
            return _tag(kind.__name__, [encode(item, room - 1) for item in value])
    if isinstance(value, dict):
        return _encode_mapping(value, room)
    for base, plain in _BASES.items():
        if isinstance(value, base):
            _check(value, base, made := plain(value))
            return encode(made, room)
    return _encode_object(value, room)


def _encode_mapping(value: Any, room: int) -> Any:
    """Encode a dict of a subclass. Those of `collections` are restored as they were."""
    collections, kind = sys.modules["collections"], type(value)
    if kind is collections.OrderedDict or kind is collections.Counter:
        return _tag("ordered" if kind is collections.OrderedDict else "counter", _pairs_of(value, room))
    if kind is collections.defaultdict:
        factory = value.default_factory
        name = getattr(factory, "__name__", "")
        if factory is not None and _FACTORIES.get(name) is not factory:
            raise SerializationError(
                "a defaultdict comes back with one of these factories only: " + ", ".join(_FACTORIES) + "; send dict(value)"
            )
        return _tag("defaultdict", [name if factory is not None else None, _pairs_of(value, room)])
    plain = dict(value)
    _check(value, dict, plain)
    try:
        alike = not hasattr(kind, "__missing__") and all(value[key] is item or value[key] == item for key, item in plain.items())
    except Exception:
        alike = False
    if not alike:
        raise SerializationError(
            f"a {_name(value)} would arrive as a plain dict, which answers otherwise; send dict(value), or what it holds"
        )
    return encode(plain, room)


def _pairs_of(value: dict[Any, Any], room: int) -> list[Any]:
    return [[encode(key, room - 1), encode(item, room - 1)] for key, item in value.items()]


def _check(value: Any, base: type, made: Any) -> None:
    """Refuse a value of a subclass if `made`, its base form, is not equal to it."""
    try:
        same = bool(value == made) or _is_same_instant(value, made)
        is_nothing = not same and bool(value != value)
    except Exception:  # a comparison of the user's own
        same = is_nothing = False
    if base is float and is_nothing:  # NaN, which has its own error
        return
    if is_nothing:
        raise SerializationError(f"a {_name(value)} that is not equal to itself, as NaT, can't be sent; send None")
    if not same:
        raise SerializationError(
            f"a {_name(value)} would arrive as a plain {base.__name__} that is not equal to it; send its text, str(value), and read that in the "
            f"task, or make a {base.__name__} of it first"
        )


def _is_same_instant(value: Any, made: Any) -> bool:
    """Return True for times that Python calls unequal only because one is in an hour that its zone has twice, and the zones are two objects."""
    kind: Any = getattr(sys.modules.get("datetime"), "datetime", None)
    if kind is None or not isinstance(value, kind) or type(value).__eq__ is not kind.__eq__ or value.tzinfo is None:
        return False
    return not (kind.__sub__(value, made))


def _encode_object(value: Any, room: int) -> Any:
    if isinstance(value, tuple):
        raise SerializationError(f"a {_name(value)} would arrive as a bare tuple; send a dataclass or `._asdict()`")
    import dataclasses

    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: encode(getattr(value, field.name), room - 1) for field in dataclasses.fields(value)}
        return _tag("dataclass", [_path_of(type(value)), fields])
    if (found := _registered_kind(value)) is not None:
        tag, to_plain = found
        return _tag(tag, encode(to_plain(value), room - 1))
    raise SerializationError(
        f"a {_name(value)} is not JSON; send plain data instead. Where all producers are trusted: FUSION_SERIALIZER=pickle (or "
        "Queue(serializer='pickle')) and FUSION_ALLOW_PICKLE=1 here, and workers started with -S pickle"
    )


def _plain_datetime(base: Any, value: Any) -> list[Any]:
    zone = value.tzinfo
    key = getattr(zone, "key", None) if type(zone).__name__ == "ZoneInfo" else None
    return [base.isoformat(value), key, value.fold]


def _plain_time(base: Any, value: Any) -> list[Any]:
    if value.tzinfo is not None and value.utcoffset() is None:
        raise SerializationError(f"{value!r} has a zone whose offset depends on the day; send a datetime")
    return [base.isoformat(value), value.fold]


def _plain_bytes(base: Any, value: Any) -> str:
    from binascii import b2a_base64

    return b2a_base64(value, newline=False).decode()


#: For each tag: module and name of the type, and the function that encodes it, by methods of the type itself. A datetime is also a date, so
#: it comes first.
_TYPES: tuple[tuple[str, str, str, Callable[[Any, Any], Any]], ...] = (
    ("datetime", "datetime", "datetime", _plain_datetime),
    ("date", "datetime", "date", lambda base, value: base.isoformat(value)),
    ("time", "datetime", "time", _plain_time),
    ("timedelta", "datetime", "timedelta", lambda base, value: [value.days, value.seconds, value.microseconds]),
    ("decimal", "decimal", "Decimal", lambda base, value: base.__str__(value)),
    ("uuid", "uuid", "UUID", lambda base, value: base.__str__(value)),
    ("bytes", "builtins", "bytes", _plain_bytes),
)


def _name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _path_of(kind: type) -> str:
    """Return `module:Qual.name`, after checking that it leads back to the same class."""
    found: Any = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is not kind or kind.__module__ == "__main__":
        raise SerializationError(
            f"{kind.__module__}.{kind.__qualname__} can't be imported by a worker; define it at the top of a module"
        )
    return f"{kind.__module__}:{kind.__qualname__}"


#: The reason if a name is missing when it is read.
_WHY = ": was it removed or renamed, or is the producer newer than this worker?"


class Decoder:
    """Decodes tagged JSON to values. `may_import(module)` returns whether classes may come from a module."""

    def __init__(self, may_import: Callable[[str], bool] | None) -> None:
        self._may_import = may_import

    def decode(self, value: Any, room: int = _MAX_UNPACK) -> Any:
        """Decode tags to values. DeserializationError for every invalid tag, whatever it holds."""
        kind = type(value)
        if kind in _SCALARS:
            return value
        if room <= 0:
            raise DeserializationError("nested too deeply")
        if kind is list:
            return [self.decode(item, room - 1) for item in value]
        if TAG not in value:
            return {key: self.decode(item, room - 1) for key, item in value.items()}
        return self._untag(value, room)

    def _untag(self, value: dict[str, Any], room: int) -> Any:
        tagged = value[TAG]
        if len(value) != 1 or type(tagged) is not list or len(tagged) != 2 or type(tagged[0]) is not str:
            raise DeserializationError(f"an object with {TAG!r} that Fusion did not write")
        name, payload = tagged
        load = _LOADERS.get(name)
        if load is None:
            # outside the try: an unreachable database is not an error of the stored data
            return _registered_loader(name)(self.decode(payload, room - 1))
        try:
            return load(self, self.decode(payload, room - 1))
        except DeserializationError:
            raise
        except Exception as error:  # constructors of foreign classes may raise anything
            raise DeserializationError(f"a stored {name} can't be read: {type(error).__name__}: {error}") from None

    def find_class(self, path: str) -> Any:
        """Return the class at `module:Qual.name`, importing the module if that is permitted."""
        module, _, qualname = path.partition(":")
        if self._may_import is not None and not self._may_import(module):
            advice = (
                "send its value" if module.partition(".")[0] in sys.stdlib_module_names else f"name its module: --tasks {module}"
            )
            raise DeserializationError(f"{path} may not be imported here; {advice}")
        from importlib import import_module

        try:
            found: Any = import_module(module)
        except ImportError as error:
            raise DeserializationError(f"{path} is not here{_WHY} ({error})") from None
        for part in qualname.split("."):
            if part.startswith("__"):
                raise DeserializationError(f"{path} is not a class")
            try:
                found = getattr(found, part)
            except AttributeError:
                raise DeserializationError(f"{path} is not here{_WHY}") from None
        return found

    def load_datetime(self, value: Any) -> Any:
        """Return a datetime from its ISO text, the name of its zone (None: the offset in the text, or naive) and its fold."""
        from datetime import datetime

        text, zone, fold = value
        moment = datetime.fromisoformat(text)
        if zone is not None:
            from zoneinfo import ZoneInfo

            moment = moment.replace(tzinfo=ZoneInfo(zone))
        return moment.replace(fold=fold) if fold else moment

    def load_date(self, value: Any) -> Any:
        """Return a date from its ISO text."""
        from datetime import date

        return date.fromisoformat(value)

    def load_time(self, value: Any) -> Any:
        """Return a time from its ISO text and its fold."""
        from datetime import time

        return time.fromisoformat(value[0]).replace(fold=value[1])

    def load_timedelta(self, value: Any) -> Any:
        """Return a timedelta from days, seconds and microseconds."""
        from datetime import timedelta

        return timedelta(*value)

    def load_decimal(self, value: Any) -> Any:
        """Return a Decimal from its text."""
        from decimal import Decimal

        return Decimal(value)

    def load_uuid(self, value: Any) -> Any:
        """Return a UUID from its text."""
        from uuid import UUID

        return UUID(value)

    def load_bytes(self, value: Any) -> Any:
        """Return bytes from base64."""
        from binascii import a2b_base64

        return a2b_base64(value)

    def load_secret(self, value: Any) -> Any:
        """Return a `Secret` from its text."""
        from fusion.kernel.redaction import Secret

        return Secret(value)

    def load_enum(self, value: Any) -> Any:
        """Return a member of an Enum from its class and its name. DeserializationError if the class has no such member here."""
        path, name = value
        found = self._enum_class(path)
        try:
            return found[name]
        except KeyError:
            raise DeserializationError(f"{path} has no member {name!r} here{_WHY}") from None

    def load_flag(self, value: Any) -> Any:
        """Return a combination of flags from its class and its number. It has no name."""
        return self._enum_class(value[0])(value[1])

    def _enum_class(self, path: str) -> Any:
        from enum import Enum

        found = self.find_class(path)
        if not isinstance(found, type) or not issubclass(found, Enum):
            raise DeserializationError(f"{path} is not an Enum")
        return found

    def load_dataclass(self, value: Any) -> Any:
        """Return a dataclass from its class and its fields. DeserializationError if the class has no such field here."""
        import dataclasses

        path, fields = value
        found = self.find_class(path)
        if not isinstance(found, type) or not dataclasses.is_dataclass(found):
            raise DeserializationError(f"{path} is not a dataclass")
        made = found(
            **{field.name: fields[field.name] for field in dataclasses.fields(found) if field.init and field.name in fields}
        )
        known = {field.name for field in dataclasses.fields(found)}
        unknown = sorted(set(fields) - known)
        if unknown:
            raise DeserializationError(f"{path} has no field {unknown[0]!r} here{_WHY}")
        for name, item in fields.items():  # the sent values replace those that __post_init__ computes
            object.__setattr__(made, name, item)
        return made


def _spread(keys: list[Any]) -> list[Any]:
    if len(keys) > _SAME_HASH:
        hashes = sorted(map(hash, keys))
        if any(first == last for first, last in zip(hashes, hashes[_SAME_HASH:], strict=False)):
            raise DeserializationError(f"over {_SAME_HASH} keys share one hash, as no keys do by chance")
    return keys


def _load_dict(decoder: Decoder, value: Any) -> Any:
    _spread([key for key, _ in value])
    return dict(value)


def _load_counter(decoder: Decoder, value: Any) -> Any:
    return sys.modules["collections"].Counter(_load_dict(decoder, value))


def _load_ordered(decoder: Decoder, value: Any) -> Any:
    return sys.modules["collections"].OrderedDict(_load_dict(decoder, value))


def _load_defaultdict(decoder: Decoder, value: Any) -> Any:
    name, pairs = value
    return sys.modules["collections"].defaultdict(None if name is None else _FACTORIES[name], _load_dict(decoder, pairs))


_LOADERS: dict[str, Callable[[Decoder, Any], Any]] = {
    "tuple": lambda decoder, value: tuple(value),
    "set": lambda decoder, value: set(_spread(value)),
    "frozenset": lambda decoder, value: frozenset(_spread(value)),
    "dict": _load_dict,
    "ordered": _load_ordered,
    "counter": _load_counter,
    "defaultdict": _load_defaultdict,
    "datetime": Decoder.load_datetime,
    "date": Decoder.load_date,
    "time": Decoder.load_time,
    "timedelta": Decoder.load_timedelta,
    "decimal": Decoder.load_decimal,
    "uuid": Decoder.load_uuid,
    "bytes": Decoder.load_bytes,
    "secret": Decoder.load_secret,
    "enum": Decoder.load_enum,
    "flag": Decoder.load_flag,
    "dataclass": Decoder.load_dataclass,
}
#: Decodes the base form of a value of a subclass.
_BARE = Decoder(None)
