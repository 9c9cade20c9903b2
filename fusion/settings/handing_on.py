"""Passes settings to a process that is started with an environment. Passwords are among them, and command lines are visible to all."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from fusion.exceptions import ConfigurationError
from fusion.settings.settings import Settings


def environment_for(settings: Settings, env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` with the further variables that give a process started in it the same settings.

    ConfigurationError names a setting that a variable can't hold.
    """
    handed = dict(env)
    for item in _different(settings, handed):
        if (value := getattr(settings, item.name)) is not None:
            handed[_variable(item)] = _text(item, value)
    # Only now: if a url is set here, other variables that name a Redis may stay for other programs.
    for item in _different(settings, handed):
        if getattr(settings, item.name) is None:
            for name in (_variable(item), *item.metadata["env"]):
                handed.pop(name, None)
    for item in _different(settings, handed):
        raise ConfigurationError(_cannot(item.name), code="FUS-202")
    return handed


def _different(settings: Settings, env: Mapping[str, str]) -> Iterator[Any]:
    found = Settings.load(env=env)
    return (
        item for item in fields(Settings) if "read" in item.metadata and getattr(found, item.name) != getattr(settings, item.name)
    )


def _variable(item: Any) -> str:
    return f"FUSION_{item.name.upper()}"


def _text(item: Any, value: Any) -> str:
    """Return the text from which the setting's reader reads `value`."""
    try:
        text = (
            ",".join(map(str, value))
            if isinstance(value, tuple)
            else json.dumps(value)
            if isinstance(value, Mapping)
            else str(value)
        )
        if item.metadata["read"](text) == value:
            return text
    except (TypeError, ValueError):  # it has no text form, or the reader refuses that
        pass
    raise ConfigurationError(_cannot(item.name), code="FUS-202")


def _cannot(name: str) -> str:
    return f"setting {name} can't be handed to another process as it is: set FUSION_{name.upper()}, or name it in a module (FUSION_CONFIG)"
