"""How the value of a setting is read, whether it is Python (a module's, a flag's) or text (the environment's)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

_DURATION = re.compile(r"(-?\d+(?:\.\d+)?)\s*([smhd]?)\Z")
_SIZE = re.compile(r"(\d+)\s*([kmg]?)(?:i?b)?\Z", re.IGNORECASE)
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%?\Z")


class Invalid(ValueError):
    """What a value should have been."""


def seconds(low: float, *, whole: bool = False, endless: bool = False) -> Callable[[Any], float]:
    """`30`, `2.5`, `"90s"`, `"5m"`, `"2h"`, `"1d"`; whole ones where Redis wants that; -1 for no limit where `endless`."""

    def read(value: Any) -> float:
        match = None if isinstance(value, bool) else _DURATION.match(str(value).strip().lower())
        rule = f"use {'whole ' * whole}seconds, or 30s, 5m, 2h, 1d; at least {low:g}" + (
            ", or -1 for no limit" if endless else ""
        )
        if match is None:
            raise Invalid(rule)
        number = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]
        if endless and number == -1:
            return -1
        if number < low or (whole and not number.is_integer()):
            raise Invalid(rule)
        return int(number) if number.is_integer() else number

    return read


def size(value: Any) -> int:
    match = None if isinstance(value, bool) else _SIZE.match(str(value).strip())
    if match is None or int(match[1]) < 1:
        raise Invalid("use bytes, or 512k, 1m")
    return int(match[1]) * {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}[match[2].lower()]


def whole(low: int, high: int | None = None) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        try:
            number = -1 if isinstance(value, (bool, float)) else int(value)
        except (TypeError, ValueError):
            number = low - 1
        if number < low or (high is not None and number > high):
            raise Invalid(f"use a whole number from {low}" + ("" if high is None else f" to {high}"))
        return number

    return read


def flag(value: Any) -> bool:
    text = str(value).strip().lower()
    if text in ("1", "true", "t", "yes", "y", "on"):
        return True
    if text in ("0", "false", "f", "no", "n", "off", ""):
        return False
    raise Invalid("use true or false")


def text(value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)) or not str(value).strip():
        raise Invalid("use a text that is not empty")
    return str(value).strip()


def path(value: Any) -> str:
    return os.path.abspath(os.path.expanduser(text(value)))


def matching(pattern: str, rule: str) -> Callable[[Any], str]:
    compiled = re.compile(pattern)

    def read(value: Any) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            raise Invalid(rule)
        return value

    return read


def choice(*names: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if str(value).lower() not in names:
            raise Invalid("use one of " + ", ".join(names))
        return str(value).lower()

    return read


def names(value: Any) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, (list, tuple, set, frozenset)) or not all(isinstance(item, str) for item in items):
        raise Invalid("use a list of names, or a text with commas between them")
    names = tuple(dict.fromkeys(item.strip() for item in items if item.strip()))
    if not names:
        raise Invalid("name at least one")
    return names


def mapping(value: Any) -> dict[str, Any]:
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    if not isinstance(found, Mapping):
        raise Invalid("use a dict; in the environment, a JSON object")
    return dict(found)


def redis_url(value: Any) -> str:
    url = text(value)
    if not re.match(r"(rediss?|unix|rediss?\+sentinel)://", url):
        raise Invalid(
            "use redis://host:6379/0, rediss:// for TLS, unix:///path/redis.sock or redis+sentinel://host:26379/mymaster/0"
        )
    return url


def percent(value: Any) -> float:
    """`90`, `"90"`, `"90%"`."""
    match = None if isinstance(value, bool) else _PERCENT.match(str(value).strip())
    number = float(match[1]) if match else 0
    if not 0 < number <= 100:
        raise Invalid("use a percentage above 0 and up to 100")
    return number


def host(value: Any) -> str:
    found = text(value)
    if not re.fullmatch(r"[A-Za-z0-9_.:%-]+", found):
        raise Invalid("use a host's name or address, like 127.0.0.1 or 0.0.0.0")
    return found
