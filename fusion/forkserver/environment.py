"""Removes Fusion's secrets from the environment that tasks see."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from fusion.settings import Settings

#: Secrets of callbacks and sinks, which no task needs.
_REPORTING = ("FUSION_CALLBACK_SECRETS", "FUSION_ELASTICSEARCH_PASSWORD", "FUSION_ELASTICSEARCH_API_KEY")
_REPORTING_URLS = ("FUSION_ELASTICSEARCH_URL", "FUSION_ELASTICSEARCH_URLS")
#: Secrets that are needed to enqueue.
_ENQUEUE = ("FUSION_SECRET_KEYS", "FUSION_REDIS_PASSWORD", "REDIS_PASSWORD")
#: The names of other programs among these are changed only if Fusion took its Redis URL from them.
_REDIS_URLS = ("FUSION_REDIS_URL", "REDIS_URL", "RQ_REDIS_URL")


def for_tasks(settings: Settings, environment: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables that differ in the environment of tasks, by the setting `task_secrets`; None for a removed one."""
    if settings.task_secrets == "all":
        return {}
    changed: dict[str, str | None] = dict.fromkeys(_REPORTING)
    for name in _REPORTING_URLS:
        changed[name] = ",".join(without_login(url) for url in environment.get(name, "").split(","))
    if settings.task_secrets == "none":
        changed |= dict.fromkeys(name for name in _ENQUEUE if not _is_strange(settings, name, "redis_password", environment))
        for name in _REDIS_URLS:
            if not _is_strange(settings, name, "redis_url", environment):
                changed[name] = without_login(environment.get(name, ""))
        changed["FUSION_SENTINEL"] = _without_passwords(environment.get("FUSION_SENTINEL", ""))
    return {name: value for name, value in changed.items() if name in environment and value != environment[name]}


def changed_by(changed: Mapping[str, str | None], environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` with the variables of `changed` replaced, or removed where they are None."""
    kept = {name: value for name, value in environment.items() if name not in changed}
    return kept | {name: value for name, value in changed.items() if value is not None}


def _is_strange(settings: Settings, name: str, setting: str, environment: Mapping[str, str]) -> bool:
    """Return True for a variable of another program whose value Fusion does not use."""
    return not name.startswith("FUSION_") and getattr(settings, setting) != environment.get(name)


def without_login(url: str) -> str:
    """Return `url` without user, password and other parts of a login."""
    if not url:
        return url
    try:
        parts = urlsplit(url)
        query = [(key, value) for key, value in parse_qsl(parts.query, keep_blank_values=True) if not _is_login(key)]
        left = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        return f"{left}?{urlencode(query)}" if query else left
    except ValueError:  # no url at all
        return ""


def _is_login(name: str) -> bool:
    return any(word in name.lower() for word in ("password", "username", "secret", "token"))


def _without_passwords(text: str) -> str | None:
    try:
        return json.dumps(_stripped(json.loads(text)))
    except (ValueError, RecursionError):
        return None


def _stripped(value: Any) -> Any:
    return {name: _stripped(item) for name, item in value.items() if not _is_login(name)} if isinstance(value, dict) else value
