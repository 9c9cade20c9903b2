"""`FUSION` in a Django project's settings: Fusion's settings in capitals, and a few for Django only. Sets up no app."""

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
    """Parse True, False, or the alias of a database."""
    try:
        return readers.flag(value)
    except readers.Invalid:
        pass
    try:
        return readers.text(value)
    except readers.Invalid:
        raise readers.Invalid("use True, False or the alias of a database") from None


#: Settings of the integration alone, with their defaults. The first two are read at each enqueue; a variable may set them as well.
OPTIONS: dict[str, Any] = {
    "ON_COMMIT": True,
    "OUTBOX": False,
    "PRESERVE_FINISHED_JOBS": None,
    "CLEAR_FINISHED_JOBS_AFTER": None,
}
_READ: dict[str, Callable[[Any], Any]] = {"ON_COMMIT": readers.flag, "OUTBOX": _alias}
#: A module to import before the modules of tasks, in each process that loads these.
SETUP = "fusion.contrib.django.setup"
#: Default time for which finished jobs are preserved, if they are to be: as in Solid Queue and Steady Queue.
PRESERVED = timedelta(days=1)
#: Apps whose module `tasks` has no tasks.
_NO_TASKS = {"fusion.contrib.django", "django_tasks"}


def given() -> dict[str, Any]:
    """Return FUSION as it is written. ConfigurationError if it is no dict, or has a key that is no setting."""
    said = getattr(settings, "FUSION", {})
    if not isinstance(said, Mapping):
        raise ConfigurationError(
            f"FUSION in {where()} is a {type(said).__name__}; write a dict: FUSION = {{'REDIS_URL': ...}}", code="FUS-230"
        )
    for name in said:
        if fault := fault_of(name):
            raise ConfigurationError(fault, code="FUS-230")
    return dict(said)


def fault_of(name: object) -> str:
    """Return why `name` can't be a key of FUSION; empty if it can."""
    known = names()
    if name in known:
        return ""
    near = get_close_matches(str(name).upper().removeprefix("FUSION_"), known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "docs/settings.md names them"
    return f"FUSION[{name!r}] in {where()} is not a setting of Fusion; {hint}"


def names() -> list[str]:
    """Return every key that FUSION may have."""
    return [*(item.name.upper() for item in fields(Settings) if "read" in item.metadata), *OPTIONS]


def where() -> str:
    """Return the name of the project's settings module."""
    return getattr(settings, "SETTINGS_MODULE", None) or os.environ.get("DJANGO_SETTINGS_MODULE") or "settings.configure()"


def option(name: str) -> Any:
    """Return ON_COMMIT or OUTBOX as it is now, from the variable, else from the project. ConfigurationError names an invalid value."""
    value, origin = os.environ.get(f"FUSION_{name}"), f"environment FUSION_{name}"
    if not value:
        value, origin = getattr(settings, "FUSION", {}).get(name), f"module {where()} (FUSION[{name!r}])"
    if value is None:
        return OPTIONS[name]
    try:
        return _READ[name](value)
    except readers.Invalid as rule:
        raise ConfigurationError(
            f"setting {name.lower()} = {value!r} (from {origin}) is not valid: {rule}", code="FUS-230"
        ) from None


def outbox_alias() -> str | None:
    """Return the alias of the database whose outbox is used, None for none."""
    said = option("OUTBOX")
    return DEFAULT_DB_ALIAS if said is True else said or None


def as_settings() -> dict[str, Any]:
    """Return what a `-c` module of this project has: setting in capitals -> value. ConfigurationError names an invalid value."""
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
    """Return the module `tasks` of each installed app that has one."""
    return tuple(f"{name}.tasks" for name in _app_names() if name not in _NO_TASKS and find_spec(f"{name}.tasks"))


def _app_names() -> Iterator[str]:
    """Yield the names of the installed apps, without loading their models."""
    configs = apps.get_app_configs() if apps.apps_ready else map(AppConfig.create, settings.INSTALLED_APPS)
    for config in configs:
        yield config.name


def _kept(said: Mapping[str, Any]) -> float | None:
    """Return for how many seconds results are kept, by the two settings of Solid Queue; None if neither is set."""
    preserve, after = said.get("PRESERVE_FINISHED_JOBS"), said.get("CLEAR_FINISHED_JOBS_AFTER")
    if preserve is None and after is None:
        return None
    if "RESULT_TTL" in said:
        raise ConfigurationError(
            f"FUSION in {where()} says RESULT_TTL and PRESERVE_FINISHED_JOBS or CLEAR_FINISHED_JOBS_AFTER; keep one",
            code="FUS-230",
        )
    if preserve is False:
        return 0
    after = PRESERVED if after is None else after
    return after.total_seconds() if isinstance(after, timedelta) else after
