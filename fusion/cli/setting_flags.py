"""The command line flags of settings, as declared in `fusion/settings/flags.py`. Each command gets the flags meant for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields
from typing import Any

import click

from fusion.cli import names
from fusion.settings.flags import Flag
from fusion.settings.groups import JobSettings, WorkerSettings
from fusion.settings.reporting import ReportingSettings


def declared(command: str) -> Iterator[tuple[Field[Any], Flag]]:
    """Yield the settings for which a command has flags, a worker's first, in the order of their groups."""
    for group in (WorkerSettings, JobSettings, ReportingSettings):
        for item in fields(group):
            for flag in item.metadata["flags"]:
                if command in flag.of:
                    yield item, flag


def setting_flags(command: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the flags of the command's settings. Each parameter has the name of its setting."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for item, flag in reversed(list(declared(command))):
            function = _option(item, flag)(function)
        return function

    return add


def given_settings(command: str, given: dict[str, Any]) -> dict[str, Any]:
    """Take the values of these flags out of a command's parameters, in the form for `Settings.load`. None: not given."""
    found: dict[str, Any] = {}
    for item, flag in declared(command):
        if flag.raw:
            continue
        value = given.pop(item.name)
        if flag.repeated:
            value = tuple(names.split(value)) or None
        found[item.name] = value
    if tasks := found.pop("tasks", None):
        found["more_tasks"] = tasks  # the flag adds to the setting
    return found


def own_flags(*commands: str) -> set[str]:
    """Return the parameters that a process does not pass to children with the same command line."""
    return {item.name for command in commands for item, flag in declared(command) if flag.own}


def _option(item: Field[Any], flag: Flag) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    spelled = [f"--{flag.name or item.name.replace('_', '-')}", item.name]
    if flag.short:
        spelled.insert(0, flag.short)
    shown = flag.default
    if shown is None and item.default is not MISSING and item.default is not None:
        shown = f"{item.default:g}" if isinstance(item.default, float) else str(item.default)
    text = flag.help + (f"  [default: {shown}]" if shown else "")
    if flag.switch:
        return click.option(*spelled, is_flag=True, default=None, help=text, hidden=flag.hidden)
    if flag.choices:
        return click.option(*spelled, type=click.Choice(list(flag.choices)), help=text, hidden=flag.hidden)
    return click.option(*spelled, metavar=flag.metavar, multiple=flag.repeated, help=text, hidden=flag.hidden)
