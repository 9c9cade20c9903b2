"""Arguments and results as bytes.

JSON, with `{"__fusion__": [type, value]}` for types that JSON lacks (`fusion.kernel.json_types` has them). A value is restored unchanged, or
SerializationError is raised. Tuples stay tuples, keys that are not strings keep their type, and a user's dict with the key `__fusion__` is
escaped. Values of a subclass are restored as their base class, if that is equal to them; dicts of `collections` as they were.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from fusion.exceptions import ConfigurationError, DeserializationError, PayloadTooLarge, SerializationError
from fusion.kernel import defaults
from fusion.kernel.compression import LARGEST, inflated, plain
from fusion.kernel.importing import method_path, owner_of
from fusion.kernel.sentences import FIELDS_SIZE

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from typing import Any, NoReturn

TAG = defaults.JSON_TAG
_RAW_TAG = TAG.encode()

#: Most characters of a key that an error shows.
_QUOTED = 100

_INFINITE = (float("inf"), float("-inf"))
_SCALARS = frozenset({str, int, float, bool, type(None)})
_TEXT = frozenset({str})


class Serializer:
    """Encodes one value to bytes and decodes it."""

    name = ""

    def dumps(self, value: Any) -> bytes:
        """Return the value as bytes. SerializationError or PayloadTooLarge if it can't be stored."""
        raise NotImplementedError

    def loads(self, raw: bytes) -> Any:
        """Return the value again. DeserializationError for any error in `raw`."""
        raise NotImplementedError


def _is_plain(value: Any, room: int) -> bool:
    """Return True if JSON alone restores this value unchanged. Checks exact types: the C encoder would encode a tuple as a list."""
    kind = type(value)
    if kind in _SCALARS:
        return True
    if room <= 0:
        return False
    if kind is list:
        if _SCALARS.issuperset(map(type, value)):
            return True
        for item in value:  # noqa: SIM110  a loop takes half of a generator's time
            if type(item) not in _SCALARS and not _is_plain(item, room - 1):
                return False
        return True
    if kind is not dict or TAG in value:
        return False
    if _TEXT.issuperset(map(type, value)) and _SCALARS.issuperset(map(type, value.values())):
        return True
    for key, item in value.items():  # noqa: SIM110
        if type(key) is not str or (type(item) not in _SCALARS and not _is_plain(item, room - 1)):
            return False
    return True


def _is_deep(value: Any, room: int) -> bool:
    if type(value) is dict:
        value = value.values()
    elif type(value) is not list:
        return False
    return room <= 0 or any(_is_deep(item, room - 1) for item in value if type(item) not in _SCALARS)


def _decode(text: str) -> Any:
    """Decode with the C scanner alone: the decoder around it doubles the time of a small job."""
    try:
        value, end = _scan(text, 0)
        if end == len(text):
            return value
    except StopIteration:
        pass
    stripped = text.strip(" \t\r\n")
    try:
        value, end = _scan(stripped, 0)
    except StopIteration as error:
        raise DeserializationError(f"not JSON: no value at character {error.value}") from None
    if end != len(stripped):
        raise DeserializationError(f"not JSON: more text after the value, at character {end}")
    return value


def _no_constant(text: str) -> NoReturn:
    raise DeserializationError(f"{text} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in _INFINITE:  # 1e400: nobody wrote an infinity, and it could not be stored again
        raise DeserializationError(f"{text[:_QUOTED]} is too large for a number; send it as a string")
    return value


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise DeserializationError(f"the key {twice[:_QUOTED]!r} occurs twice in one object")
    return found


def _encoder(**options: Any) -> Callable[[Any], str]:
    """Return a fast `JSONEncoder.encode`. The original makes a C encoder anew for each value, which takes longer than a small job."""
    python = json.JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":"), **options)
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return python.encode
    text = json.encoder.encode_basestring_ascii if python.ensure_ascii else json.encoder.encode_basestring
    chunks = make(None, python.default, text, None, ":", ",", False, False, False)
    return lambda value: "".join(chunks(value, 0))


_encode = _encoder(ensure_ascii=False)
_scan = json.JSONDecoder(object_pairs_hook=_pairs, parse_float=_finite, parse_constant=_no_constant).scan_once  # type: ignore[attr-defined]
_encode_ascii = _encoder(ensure_ascii=True)


class JSONSerializer(Serializer):
    """The default. `may_import` returns whether an Enum or dataclass may be loaded from a module; by default any."""

    name = "json"

    def __init__(self, may_import: Callable[[str], bool] | None = None, max_depth: int = defaults.MAX_DEPTH) -> None:
        self._may_import = may_import
        self._max_depth = max_depth

    def dumps(self, value: Any) -> bytes:
        """Return the value as JSON. SerializationError names a type that can't be stored; PayloadTooLarge if it is nested too deeply."""
        if not _is_plain(value, self._max_depth):
            from fusion.kernel.json_types import encode

            value = encode(value, self._max_depth)
        try:
            return _encode(value).encode()
        except UnicodeEncodeError:  # a lone surrogate, which only an escape can carry
            return _encode_ascii(value).encode()
        except ValueError as error:
            reason = "NaN and Infinity are not JSON" if "float" in str(error) else str(error)
            raise SerializationError(f"{reason}; send it as a string or None") from None

    def loads(self, raw: bytes) -> Any:
        """Return the value of a JSON text, compressed or not. DeserializationError for any error in `raw`."""
        raw = plain(raw)
        return self.untag(self.parse(raw), raw)

    def parse(self, raw: bytes) -> Any:
        """Return the plain JSON, with tags not decoded yet."""
        try:
            value = _decode(raw.decode())
            # A tag takes up to four levels of JSON for one level of the value.
            depth = self._max_depth * (4 if _RAW_TAG in raw else 1)
            if raw.count(b"[") + raw.count(b"{") > self._max_depth and _is_deep(value, depth):
                raise DeserializationError(f"nested deeper than {self._max_depth}")
            return value
        except RecursionError:
            raise DeserializationError(f"nested deeper than {self._max_depth}") from None
        except ValueError as error:  # JSONDecodeError, UnicodeDecodeError, or an int with too many digits
            raise DeserializationError(f"not JSON: {error}") from None

    def untag(self, parsed: Any, raw: bytes) -> Any:
        """Decode tags, if `raw` has any: the second half of `loads`. DeserializationError for an invalid tag."""
        if _RAW_TAG not in raw:
            return parsed
        from fusion.kernel.json_types import Decoder

        try:
            return Decoder(self._may_import).decode(parsed)
        except RecursionError:
            raise DeserializationError(f"nested deeper than {self._max_depth}") from None


class PickleSerializer(Serializer):
    """Pickles, as RQ stores jobs. Loading one runs code, so producers must be trusted: off unless `allow_pickle`."""

    name = "pickle"

    #: Largest size of a decompressed pickle, in bytes: 1 MB of zlib may hold a gigabyte.
    max_size = LARGEST

    def dumps(self, value: Any) -> bytes:
        """Return the value as a pickle. SerializationError for any error in the value's own code."""
        import pickle

        try:
            return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # pickling runs the value's own code, which may raise anything
            raise SerializationError(f"{type(value).__name__} can't be pickled: {error}") from None

    def loads(self, raw: bytes) -> Any:
        """Load a pickle, compressed or not, as RQ does."""
        import pickle

        data = self._inflate(raw)
        try:
            return pickle.loads(data)
        except Exception as error:
            raise DeserializationError(f"not a pickle this process can load: {type(error).__name__}: {error}") from None

    def first_text(self, raw: bytes) -> str:
        """Return the first text in a pickle: for a call its function's name. Loads nothing. DeserializationError."""
        import pickletools

        try:
            texts = (given for _, given, _ in pickletools.genops(self._inflate(raw)) if type(given) is str)
            return next(texts, "")
        except ValueError as error:
            raise DeserializationError(f"not a pickle: {error}") from None

    def _inflate(self, raw: bytes) -> bytes:
        import zlib

        try:
            return inflated(raw, self.max_size)
        except zlib.error:
            return raw


def get_serializer(name: str, *, allow_pickle: bool) -> Serializer:
    """Return the serializer `json` or `pickle`. ConfigurationError for pickle that is not allowed, and for any other name."""
    if name in ("", "json"):
        return JSONSerializer()
    if name != "pickle":
        raise ConfigurationError(f"unknown serializer {name!r}; use 'json' or 'pickle'", code="FUS-224")
    if not allow_pickle:
        raise ConfigurationError(
            "pickle is off, because loading a pickle runs code; if all producers are trusted, "
            "set allow_pickle (FUSION_ALLOW_PICKLE=1)",
            code="FUS-224",
        )
    return PickleSerializer()


def dumps_call(
    serializer: Serializer,
    func_name: str,
    args: tuple[Any, ...] | list[Any],
    kwargs: dict[str, Any],
    max_payload: int = defaults.MAX_PAYLOAD,
    instance: Any = None,
) -> bytes:
    """Return a call as the job hash stores it. SerializationError names the argument; PayloadTooLarge over `max_payload`.

    `instance`: the object whose method is called. Only a pickle holds one, as RQ's do: with the bare name of the method.
    """
    if serializer.name == "pickle":
        import zlib

        name = func_name if instance is None else func_name.rpartition(".")[2]
        try:
            pickled = serializer.dumps((name, instance, tuple(args), dict(kwargs)))
        except SerializationError as error:
            raise _named(serializer, func_name, args, kwargs, error) from None
        _check_size(len(pickled), max_payload, func_name)
        return zlib.compress(pickled)
    if instance is not None:
        raise SerializationError(
            f"{func_name} is a method of an object, which JSON can't hold; enqueue a function, a static or a class method, or pickle the "
            "call: serializer='pickle', which needs allow_pickle (docs/security.md)"
        )
    try:
        raw = serializer.dumps([func_name, None, list(args), kwargs if type(kwargs) is dict else dict(kwargs)])
    except (SerializationError, PayloadTooLarge) as error:
        raise _named(serializer, func_name, args, kwargs, error) from None
    _check_size(len(raw), max_payload, func_name)
    return raw


def _check_size(size: int, limit: int, func_name: str) -> None:
    if size > limit:
        raise PayloadTooLarge(
            f"the arguments of {func_name} {FIELDS_SIZE.format(n=size, n_limit=limit)} (max_payload, FUSION_MAX_PAYLOAD). "
            "Store big data elsewhere and send its key"
        )


def _named(
    serializer: Serializer, func_name: str, args: tuple[Any, ...] | list[Any], kwargs: dict[str, Any], error: Exception
) -> Exception:
    """Return the same error with the first faulty argument named."""
    where, reason = "the arguments", str(error)
    for label, value in _labelled(args, kwargs):
        try:
            serializer.dumps(value)
        except (SerializationError, PayloadTooLarge) as found:
            where, reason = label, str(found)
            break
    return type(error)(f"{where} of {func_name}: {reason}")


def loads_call(serializer: Serializer, raw: bytes) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """Parse what `dumps_call` stored: name, args, kwargs. DeserializationError if it is no call."""
    name, load, _ = split_call(serializer, raw)
    return name, *load()


def split_call(serializer: Serializer, raw: bytes) -> tuple[str, Callable[[], tuple[tuple[Any, ...], dict[str, Any]]], Any]:
    """Return the name, a function that decodes args and kwargs, and the object whose method is called; None for a function. Name and arguments
    are two steps, since importing the task's module in between loads the Enums and dataclasses that it uses."""
    if isinstance(serializer, JSONSerializer):
        json_serializer, raw = serializer, plain(raw)
        name, parsed_args, parsed_kwargs = _checked_call(serializer.parse(raw))
        return name, lambda: _untagged(json_serializer, name, parsed_args, parsed_kwargs, raw), None
    call = serializer.loads(raw)
    instance = call[1] if isinstance(call, tuple) and len(call) == 4 else None
    name, args, kwargs = _checked_call(call if instance is None else (call[0], None, *call[2:]))
    if instance is not None:
        name = method_path(owner_of(instance), name)
    return name, lambda: (tuple(args), _checked_kwargs(kwargs)), instance


def _untagged(
    serializer: JSONSerializer, func_name: str, args: list[Any], kwargs: dict[str, Any], raw: bytes
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return args and kwargs with their tags decoded; DeserializationError if they are invalid."""
    try:
        read, named = serializer.untag([args, kwargs], raw)
    except DeserializationError as error:
        raise _naming(serializer, func_name, args, kwargs, raw, error) from None
    return tuple(read), _checked_kwargs(named)


def _naming(
    serializer: JSONSerializer, func_name: str, args: list[Any], kwargs: dict[str, Any], raw: bytes, error: DeserializationError
) -> DeserializationError:
    """Return the same error with the first argument named that can't be read."""
    for label, value in _labelled(args, kwargs):
        try:
            serializer.untag(value, raw)
        except DeserializationError as found:
            return DeserializationError(f"{label} of {func_name}: {found}")
    return error


def _labelled(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(f"argument {n}", value) for n, value in enumerate(args, 1)] + [
        (f"keyword {key!r}", value) for key, value in kwargs.items()
    ]


def part_call(raw: bytes) -> tuple[str, list[Any], dict[str, Any]]:
    """Return the name, args and kwargs of an uncompressed JSON call as plain JSON: tags are not decoded, so nothing is imported.
    DeserializationError if it is no call."""
    name, args, kwargs = _checked_call(JSONSerializer().parse(raw))
    return name, list(args), kwargs


def join_call(name: str, args: list[Any], kwargs: dict[str, Any], max_payload: int) -> bytes:
    """Encode such a call again, checked as `dumps_call` does."""
    try:
        raw = _encode([name, None, args, kwargs]).encode()
    except UnicodeEncodeError:
        raw = _encode_ascii([name, None, args, kwargs]).encode()
    _check_size(len(raw), max_payload, name)
    try:
        JSONSerializer().parse(raw)
    except DeserializationError as error:
        raise PayloadTooLarge(f"the arguments of {name}: {error}") from None
    return raw


def _checked_call(call: Any) -> tuple[str, Any, Any]:
    if not isinstance(call, (list, tuple)) or len(call) != 4:
        raise DeserializationError("the job's data is not a call (func_name, instance, args, kwargs)")
    name, instance, args, kwargs = call
    if instance is not None:
        raise DeserializationError("the job calls a method of an object, which only a pickle can hold")
    if not isinstance(name, str) or not isinstance(args, (list, tuple)) or not isinstance(kwargs, dict):
        raise DeserializationError("the job's data is not a call (func_name, instance, args, kwargs)")
    return name, args, kwargs


def _checked_kwargs(kwargs: Any) -> dict[str, Any]:
    if type(kwargs) is not dict or (kwargs and not _TEXT.issuperset(map(type, kwargs))):
        raise DeserializationError("the keyword arguments are not a mapping from names")
    return kwargs
