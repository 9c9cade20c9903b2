"""The flags that a process passes to child processes with the same command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection

import click
from click.core import ParameterSource

from fusion.sidecar import SWITCH


def as_typed(context: click.Context, command: click.Command, without: Collection[str]) -> list[str]:
    """Return the command line again: the flags that `command` has, without those in `without` and without --url (see `hand_on_url`)."""
    typed: list[str] = []
    queues: list[str] = []
    for param in command.params:
        name = str(param.name)
        if name in without or name == "url" or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        value = context.params[name]
        if isinstance(param, click.Argument):
            queues = ["--", *value]
        elif isinstance(param, click.Option) and param.is_flag:
            typed.append(max(param.opts if value else param.secondary_opts, key=len))
        else:
            for one in value if param.multiple else [value]:
                typed += [max(param.opts, key=len), str(one)]
    return typed + queues


def hand_on_url(url: str | None) -> None:
    """Pass the Redis of --url to the children in their environment. It may contain a password, and command lines are visible to all users."""
    if url:
        os.environ["FUSION_REDIS_URL"] = url


def without_embedded_worker() -> None:
    """Keep applications that task modules or jobs import from starting a worker of their own, since they run inside a worker."""
    os.environ[SWITCH] = "0"


def program() -> list[str]:
    """Return the program to start, so that `ps` shows the children under the parent's program name."""
    script = sys.argv[0]
    if os.path.basename(script) == "__main__.py" or not os.path.isfile(script):
        return [sys.executable, "-m", "fusion"]
    return [sys.executable, script]
