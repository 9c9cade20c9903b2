"""Masking: events, logs and pages show these texts of a job's data, never the data itself. docs/secrets.md has the rules.

No function here raises. In doubt a value is masked: masking too much is a nuisance, masking too little is a leak.
"""

from __future__ import annotations

import json
import re

from fusion.kernel.secret_names import MASK as MASK
from fusion.kernel.secret_names import is_secret as is_secret

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from typing import Any

#: Shown for data that can't be masked: pickles, which are not loaded for this, and data that is neither JSON nor a call.
PICKLED, UNREADABLE = "[pickled]", "[unreadable]"

_LIMIT = 2048
#: Most characters of a message.
_MESSAGE = 1024
#: Most levels that are shown, and most entries of one list or object.
_DEPTH, _ENTRIES = 12, 200
#: Most characters of a string that are examined, and that are shown; of a key.
_LOOKED_AT, _SHOWN, _KEY = 4096, 500, 64
#: Larger JSON, in bytes, is not parsed only to be shown.
_PARSED = 8 * 1024 * 1024
#: Characters of the text that replaces omitted entries.
_MORE = 24

_TAG = "__fusion__"
#: The label of a model: its app and its name.
_MODEL = re.compile(r"[a-z_]\w{0,99}\.[a-z_]\w{0,99}", re.ASCII)

_HOST = re.compile(
    r"(https?://)(?:[^\s/?#@]*@)?([A-Za-z0-9-]{1,40}(?:\.[A-Za-z0-9-]{1,40})+(?::\d{1,5})?)(?:[/?#]\S*)?", re.IGNORECASE
)
_OPAQUE_NAME = re.compile(r"[A-Za-z0-9]{16,}")
_DIGIT = re.compile(r"\d")
_DIGITS = re.compile(r"\d{3,}")
_LONG = re.compile(r"\S{6,}")
#: A number, a date, a time, or an amount: a text without letters.
_FIGURES = re.compile(r"[0-9!-/:-@\[-`{-~]+")
_NAME = re.compile(r"[^\W\d][\w.:/ -]*")


class Secret:
    """A text that prints as `***`; `reveal` returns the text. As an argument or a result it arrives as a Secret."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"Secret of a {type(text).__name__}: a secret is a text; turn it into one first")
        self._text = str.__str__(text)

    def reveal(self) -> str:
        """Return the text itself."""
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __str__(self) -> str:
        return MASK

    def __repr__(self) -> str:
        return f"Secret('{MASK}')"


def masked_call(raw: bytes, serializer: str = "json", limit: int = _LIMIT) -> str:
    """Return the arguments of a stored call (a job's `data`) as JSON, `{"args":[...],"kwargs":{...}}`, in at most `limit` characters."""
    if serializer not in ("", "json"):
        return PICKLED if raw else ""
    try:
        if not raw:
            return ""
        name, instance, args, kwargs = _parsed(raw)
        if (
            not isinstance(name, str)
            or instance is not None
            or not isinstance(args, (list, dict))
            or not isinstance(kwargs, dict)
        ):
            return UNREADABLE
        return _render({"args": args, "kwargs": kwargs}, _DEPTH + 1, limit, True)
    except Exception:  # no call, no JSON, no memory: other producers may store anything
        return UNREADABLE


def masked_result(raw: bytes, serializer: str = "json", limit: int = _LIMIT) -> str:
    """Return a stored result, or other JSON of a job such as its meta, as JSON of at most `limit` characters."""
    if serializer not in ("", "json"):
        return PICKLED if raw else ""
    try:
        return _render(_parsed(raw), _DEPTH, limit, True) if raw else ""
    except Exception:
        return UNREADABLE


def masked_value(value: Any, limit: int = _LIMIT, *, strict: bool = True) -> str:
    """Return any value as JSON of at most `limit` characters. Not `strict`: texts are masked like messages, since a person chose to write
    them."""
    try:
        return _render(value, _DEPTH, limit, strict)
    except Exception:
        return UNREADABLE


def masked_text(text: object, limit: int = _MESSAGE, *, source: bool = False) -> str:
    """Return a message on one line of at most `limit` characters. It is without figures that may be codes, without secrets by name or form,
    and without data in URLs. `source`: it is a line of a program. Pass the whole text: a secret that was cut before can't be recognized."""
    try:
        return cut(printable(_message(str(text), 2 * limit, source)), limit)
    except Exception:  # a __str__ of the task's own
        return UNREADABLE


def _message(text: str, limit: int, source: bool = False) -> str:
    from fusion.kernel.messages import mask_message

    return mask_message(_beginning(text, limit), cut=len(text) > limit, source=source)


def printable(text: str) -> str:
    """Return the text on one line, without terminal escapes and text-direction overrides."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c in "\n\r\t" else f"\\x{ord(c):02x}" for c in text)


def cut(text: str, limit: int) -> str:
    """Return at most `limit` characters; three dots stand for the rest."""
    return text if len(text) <= limit else text[: max(0, limit - 3)] + "..."


# -- texts


def _mask_strictly(text: str) -> str:
    """Mask a text of an argument: digits, and every word that is long enough to be a secret. Short words and the form of figures stay."""
    return _DIGIT.sub("*", _LONG.sub(_mask_long, text))


def _mask_long(found: re.Match[str]) -> str:
    word = found[0]
    if _FIGURES.fullmatch(word):
        return word
    if url := _HOST.fullmatch(word):
        return f"{url[1]}{url[2]}/{MASK}"
    return MASK


def _mask_opaque(found: re.Match[str]) -> str:
    word = found[0]
    return MASK if any(c.isdigit() for c in word) and any(c.isalpha() for c in word) else word


def _beginning(text: str, limit: int) -> str:
    """Return at most `limit` characters. A word at the end that would be cut is left out: its beginning could not be recognized as a secret."""
    if len(text) <= limit:
        return text
    head = text[:limit]
    if head and not head[-1].isspace():
        head = head[: len(head) - len(head.rsplit(None, 1)[-1])]
    return f"{head}{MASK}"


# -- values


def _parsed(raw: bytes) -> Any:
    if len(raw) > _PARSED:
        raise ValueError("too long")
    if raw[:1] == b"x":  # no JSON begins with it
        from fusion.kernel.compression import plain

        raw = plain(raw, _PARSED)
    return json.loads(raw)


def _render(value: Any, depth: int, room: int, strict: bool) -> str:
    """Return the masked value as JSON of at most `room` characters (at least 5). A count stands for omitted entries."""
    if value is None or value is True or value is False:
        return _fit({None: "null", True: "true", False: "false"}[value], room)
    if isinstance(value, str):
        return _quoted(str.__str__(value), room, strict)
    if isinstance(value, (int, float)):
        shown = int.__repr__(value) if isinstance(value, int) else float.__repr__(value)
        return _quoted(_DIGIT.sub("*", shown) if strict else _message(shown, _LOOKED_AT), room)
    if isinstance(value, dict):
        tagged = value.get(_TAG)
        if isinstance(tagged, list) and len(tagged) == 2 and isinstance(tagged[0], str):
            return _render_tagged(tagged[0], tagged[1], depth, room, strict)
        return _render_object(list(value.items()), depth, room, strict)
    if isinstance(value, (list, tuple, set, frozenset)):
        return _render_list(list(value), depth, room, strict)
    return _fit(json.dumps(MASK if isinstance(value, Secret) else f"[{type(value).__name__}]"), room)


def _render_tagged(kind: str, value: Any, depth: int, room: int, strict: bool) -> str:
    """Return a value that `fusion.kernel.json_types` tagged, in the form of its type."""
    if kind in ("tuple", "set", "frozenset") and isinstance(value, list):
        return _render_list(value, depth, room, strict)
    if kind == "defaultdict" and isinstance(value, list) and len(value) == 2:
        kind, value = "dict", value[1]
    if (
        kind in ("dict", "ordered", "counter")
        and isinstance(value, list)
        and all(isinstance(pair, list) and len(pair) == 2 for pair in value)
    ):
        return _render_object([(pair[0], pair[1]) for pair in value], depth, room, strict)
    if kind == "dataclass" and isinstance(value, list) and len(value) == 2 and isinstance(value[1], dict):
        return _render_object(list(value[1].items()), depth, room, strict)
    if kind in ("model", "locked") and isinstance(value, list) and len(value) == 3 and _is_model(value[0]):
        # a row's number reveals no person, and people search for it; other keys may be names
        key = str(value[1]) if type(value[1]) is int else _render(value[1], depth - 1, room, True).strip('"')
        return _quoted(f"{value[0]} {key}", room)
    return _quoted(MASK if kind == "secret" else f"[{kind[:20]}]", room)


def _is_model(label: Any) -> bool:
    return isinstance(label, str) and _MODEL.fullmatch(label) is not None


def _render_list(values: list[Any], depth: int, room: int, strict: bool) -> str:
    if not values:
        return "[]"
    if depth <= 0 or room < 2 * _MORE:
        return _fit(f'"[{len(values)} more]"', room)
    if len(values) == 2 and isinstance(values[0], str) and is_secret(values[0]):  # a header, or a field of a form
        values = [values[0], MASK]
    parts: list[str] = []
    left = room - 2
    for at, value in enumerate(values):
        space = left - 1 - _MORE
        if at >= _ENTRIES or space < 5:
            parts.append(f'"... {len(values) - at} more"')
            break
        parts.append(_render(value, depth - 1, space, strict))
        left -= len(parts[-1]) + 1
    return f"[{','.join(parts)}]"


def _render_object(items: list[tuple[Any, Any]], depth: int, room: int, strict: bool) -> str:
    if not items:
        return "{}"
    if depth <= 0 or room < 2 * _MORE:
        return _fit(f'"{{{len(items)} more}}"', room)
    parts: list[str] = []
    left = room - 2
    for at, (key, value) in enumerate(items):
        name = _quoted(_shown_key(key), _KEY + 8)
        space = left - len(name) - 2 - _MORE
        if at >= _ENTRIES or space < 5:
            parts.append(f'"...":"{len(items) - at} more"')
            break
        hidden = isinstance(key, str) and value is not None and is_secret(key)
        parts.append(f"{name}:{_quoted(MASK, space) if hidden else _render(value, depth - 1, space, strict)}")
        left -= len(parts[-1]) + 1
    return "{" + ",".join(parts) + "}"


def _shown_key(key: Any) -> str:
    """Return the key to show. Names stay; a number or an address used as a key is data, and masked."""
    if not isinstance(key, str):
        return _render(key, 1, _KEY, True).strip('"')
    key = _beginning(str.__str__(key), _KEY)
    if not _NAME.fullmatch(key):
        return _mask_strictly(key)
    return _DIGITS.sub(MASK, _OPAQUE_NAME.sub(_mask_opaque, key))


def _quoted(text: str, room: int, strict: bool | None = None) -> str:
    """Return the text quoted. `strict`: how to mask it; None = it is masked already."""
    if strict is not None:
        text = _mask_strictly(_beginning(text, _LOOKED_AT)) if strict else _message(text, _LOOKED_AT)
    text = cut(printable(text), min(_SHOWN, max(3, room - 2)))
    return _fit(json.dumps(text, ensure_ascii=False), room)


def _fit(text: str, room: int) -> str:
    return text if len(text) <= room else '"..."'
