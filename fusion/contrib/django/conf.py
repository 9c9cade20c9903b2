"""`FUSION` in a Django project's settings: Fusion's settings in capitals, and a few that only Django has. Sets no app up."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from datetime import timedelta
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS

from fusion.exceptions import ConfigurationError
from fusion.settings import Settings, readers


def _alias(value: Any) -> str | bool:
    """True, False, or the alias of a database."""
    try:
        return readers.flag(value)
    except readers.Invalid:
        pass
    try:
        return readers.text(value)
    except readers.Invalid:
        raise readers.Invalid("use True, False or the alias of a database") from None


#: What only the integration has, with its default. Asked at each enqueue: the first two, which a variable may say as well.
OPTIONS: dict[str, Any] = {
    "ON_COMMIT": True,
    "OUTBOX": False,
    "PRESERVE_FINISHED_JOBS": None,
    "CLEAR_FINISHED_JOBS_AFTER": None,
}
_READ: dict[str, Callable[[Any], Any]] = {"ON_COMMIT": readers.flag, "OUTBOX": _alias}
#: Imported before the modules of tasks, by each process that loads these.
SETUP = "fusion.contrib.django.setup"
#: For how long finished jobs stay that are to be preserved, where nobody says: as Solid Queue and Steady Queue have it.
PRESERVED = timedelta(days=1)
#: Apps whose module `tasks` holds none.
_NO_TASKS = {"fusion.contrib.django", "django_tasks"}


def given() -> dict[str, Any]:
    """FUSION as it is written. ConfigurationError if that is no dict, or has a key that is no setting."""
    said = getattr(settings, "FUSION", {})
    if not isinstance(said, Mapping):
        raise ConfigurationError(f"FUSION in {where()} is a {type(said).__name__}; write a dict: FUSION = {{'REDIS_URL': ...}}")
    for name in said:
        if fault := fault_of(name):
            raise ConfigurationError(fault)
    return dict(said)


def fault_of(name: object) -> str:
    """Why `name` can't be a key of FUSION; empty if it can."""
    known = names()
    if name in known:
        return ""
    near = get_close_matches(str(name).upper().removeprefix("FUSION_"), known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "docs/settings.md names them"
    return f"FUSION[{name!r}] in {where()} is no setting of Fusion; {hint}"


def names() -> list[str]:
    """Every key that FUSION may have."""
    return [*(item.name.upper() for item in fields(Settings) if "read" in item.metadata), *OPTIONS]


def where() -> str:
    """The module of the project's settings."""
    return getattr(settings, "SETTINGS_MODULE", None) or os.environ.get("DJANGO_SETTINGS_MODULE") or "settings.configure()"


def option(name: str) -> Any:
    """ON_COMMIT or OUTBOX as it is now, by the variable, else by the project. ConfigurationError names what does not fit."""
    value, origin = os.environ.get(f"FUSION_{name}"), f"environment FUSION_{name}"
    if not value:
        value, origin = getattr(settings, "FUSION", {}).get(name), f"module {where()} (FUSION[{name!r}])"
    if value is None:
        return OPTIONS[name]
    try:
        return _READ[name](value)
    except readers.Invalid as rule:
        raise ConfigurationError(f"setting {name.lower()} = {value!r} (from {origin}) is not valid: {rule}") from None


def outbox_alias() -> str | None:
    """The database whose outbox is used, None for none."""
    said = option("OUTBOX")
    return DEFAULT_DB_ALIAS if said is True else said or None


def as_settings() -> dict[str, Any]:
    """What a `-c` module of this project holds: setting in capitals -> value. ConfigurationError names what does not fit."""
    said = given()
    for name in _READ:
        option(name)
    found: dict[str, Any] = {
        name: value.total_seconds() if isinstance(value, timedelta) else value
        for name, value in said.items()
        if name not in OPTIONS
    }
    if (kept := _kept(said)) is not None:
        found["RESULT_TTL"] = kept
    if "TASKS" not in found and (modules := task_modules()):
        found["TASKS"] = modules
    found["SETUP"] = (SETUP, *found.get("SETUP", ()))
    return found


def task_modules() -> tuple[str, ...]:
    """The module `tasks` of each installed app that has one."""
    return tuple(f"{name}.tasks" for name in _app_names() if name not in _NO_TASKS and find_spec(f"{name}.tasks"))


def _app_names() -> Iterator[str]:
    """Names of the installed apps, whose models need not be loaded for it."""
    configs = apps.get_app_configs() if apps.apps_ready else map(AppConfig.create, settings.INSTALLED_APPS)
    for config in configs:
        yield config.name


def _kept(said: Mapping[str, Any]) -> float | None:
    """For how many seconds results stay, by the two settings of Solid Queue; None if neither is said."""
    preserve, after = said.get("PRESERVE_FINISHED_JOBS"), said.get("CLEAR_FINISHED_JOBS_AFTER")
    if preserve is None and after is None:
        return None
    if "RESULT_TTL" in said:
        raise ConfigurationError(
            f"FUSION in {where()} says RESULT_TTL and PRESERVE_FINISHED_JOBS or CLEAR_FINISHED_JOBS_AFTER; keep one"
        )
    if preserve is False:
        return 0
    after = PRESERVED if after is None else after
    return after.total_seconds() if isinstance(after, timedelta) else after
