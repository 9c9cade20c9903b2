"""The flags that a process hands to those it starts with the same command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection

import click
from click.core import ParameterSource

from fusion.sidecar import SWITCH


def as_typed(context: click.Context, command: click.Command, without: Collection[str]) -> list[str]:
    """The command line again, as far as `command` knows it, less what is not for it, and less --url: see `hand_on_url`."""
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
    """Let the children find the Redis that --url named in their environment: it may hold a password, and everybody sees command lines."""
    if url:
        os.environ["FUSION_REDIS_URL"] = url


def without_embedded_worker() -> None:
    """Let applications that task modules or jobs import start no worker of their own: they are inside of one."""
    os.environ[SWITCH] = "0"


def program() -> list[str]:
    """The program to start, so that `ps` shows the children as their parent was started."""
    script = sys.argv[0]
    if os.path.basename(script) == "__main__.py" or not os.path.isfile(script):
        return [sys.executable, "-m", "fusion"]
    return [sys.executable, script]
