"""Hides passwords in settings that are shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_MASK = "***"
_USER = re.compile(r"://[^:@/]*(?=:)")
_SECRET_OPTION = re.compile(r"passw|secret|token", re.IGNORECASE)
_SECRET_NAME = re.compile(r"passw|secret|token|api_?key|credential", re.IGNORECASE)


def mask_url(url: str) -> str:
    """Return `url` without its password, fit for logs. A malformed url is masked too much rather than too little."""
    # Searched piece by piece: one expression for all would rescan a long text from each place where a url may begin.
    parts: list[str] = []
    at = bare = 0
    for user in _USER.finditer(url):
        end = user.end() + 1
        if end <= max(at, bare):
            continue  # inside of what is masked, or on a line without @
        line_end = url.find("\n", end) % (len(url) + 1)
        if (sign := url.rfind("@", end, line_end)) < 0:
            bare = line_end
            continue
        parts += (url[at:end], _MASK)
        at = sign
    return "&".join(map(_mask_option, "".join([*parts, url[at:]]).split("&")))


def _mask_option(text: str) -> str:
    found = _SECRET_OPTION.search(text)
    sign = text.find("=", found.end()) if found else -1
    return text if sign < 0 else f"{text[: sign + 1]}{_MASK}"


def mask(name: str, value: Any) -> Any:
    """Return the value of this setting with secrets in it replaced by ***."""
    if name == "task_secrets":
        return value  # it names the secrets that a task gets, not their values
    if isinstance(value, Mapping):
        return {key: mask(name if _SECRET_NAME.search(name) else str(key), item) for key, item in value.items()}
    if value and not name.endswith("_file") and (_SECRET_NAME.search(name) or (name == "sentinel" and isinstance(value, str))):
        return _MASK
    if isinstance(value, (tuple, list)):
        return type(value)(mask("", item) for item in value)
    return mask_url(value) if isinstance(value, str) else value
