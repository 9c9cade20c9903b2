"""RQ's small helpers that programs use."""

from __future__ import annotations

import json
import numbers
from collections.abc import Callable
from datetime import datetime
from importlib import import_module
from typing import Any

from fusion.kernel import timeutil
from fusion.kernel.importing import resolve
from fusion.rq.exceptions import TimeoutFormatError
from fusion.rq.hints import missing
from fusion.settings import get_settings

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def parse_timeout(timeout: Any) -> int | None:
    """Return whole seconds from a number or a text like "1h"; None for None. TimeoutFormatError."""
    if timeout is None:
        return None
    if isinstance(timeout, numbers.Real):
        return int(float(timeout))
    try:
        return int(timeout)
    except (ValueError, TypeError):
        pass
    try:
        return int(timeout[:-1]) * _UNITS[timeout[-1:].lower()]
    except (ValueError, KeyError, TypeError):
        rule = 'use seconds, or a text of digits and a unit d, h, m or s, such as "1h" or "23m"'
        raise TimeoutFormatError("timeout", rule, timeout) from None


def now() -> datetime:
    """Return the time now, in UTC."""
    return timeutil.now()


NOT_JSON_SERIALIZABLE = "<not JSON serializable>"


def safe_json_dumps(value: Any) -> str:
    """Return the value as JSON, or a text that says that it is none."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return NOT_JSON_SERIALIZABLE


def import_attribute(name: str) -> Callable[..., Any]:
    """Return the function at a dotted path. Only those of the allow-list (FUSION_TASKS) are imported."""
    return resolve(name, get_settings().tasks)


def backend_class(holder: Any, default_name: str, override: Any = None) -> Any:
    """Return the class that a program chose, by itself or by its dotted path, else that of the holder. RQ's own paths stand for `fusion.rq`'s."""
    if override is None:
        return getattr(holder, default_name)
    if not isinstance(override, str):
        return override
    module, _, name = override.rpartition(".")
    return getattr(import_module(f"fusion.{module}" if module == "rq" or module.startswith("rq.") else module), name)


def as_text(value: bytes | str) -> str:
    """Return bytes as a text."""
    return value.decode() if isinstance(value, bytes) else value


def get_call_string(func_name: str | None, args: Any, kwargs: dict[Any, Any], max_length: int | None = None) -> str | None:
    """Return a call as Python writes it. Longer arguments are cut to `max_length`."""
    if func_name is None:
        return None
    shown = [_cut(repr(one), max_length) for one in args]
    shown += sorted(f"{name}={_cut(repr(value), max_length)}" for name, value in kwargs.items())
    return f"{func_name}({', '.join(shown)})"


def _cut(text: str, length: int | None) -> str:
    return text if length is None or len(text) <= length else text[:length] + "..."


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
