"""`redis start | stop | status`: the built-in Redis."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TypeVar

import click

from fusion.cli.context import prog
from fusion.cli.output import echo
from fusion.exceptions import ConfigurationError
from fusion.settings import get_settings
from fusion.store.redis_server.instance import EmbeddedRedis, EmbeddedStatus

T = TypeVar("T")

_HOME = click.option("--home", metavar="DIR", help="Its state directory [default: FUSION_HOME, else the user's state directory].")


@click.group(name="redis")
def redis_group() -> None:
    """The built-in Redis: a server of its own behind a unix socket, for trying Fusion and for a single machine."""


@redis_group.command(epilog="Example: run_worker.py redis start")
@_HOME
def start(home: str | None) -> None:
    """Start the built-in Redis, unless it runs already."""
    server = _server(home)
    before = _or_exit(server.status)
    url = _or_exit(server.start)
    status = _or_exit(server.status)
    if before.running:
        echo(f"Redis already runs: {status.server}, pid {status.pid}, at {url}")
    else:
        echo(f"Redis started: {status.server}, pid {status.pid}, at {url}")
    echo(f"Commands with the same FUSION_HOME find it by themselves; others want FUSION_REDIS_URL='{url}'", err=True)


@redis_group.command(epilog="Example: run_worker.py redis stop")
@_HOME
def stop(home: str | None) -> None:
    """Stop the built-in Redis; its data is kept for the next start."""
    server = _server(home)
    if _or_exit(server.stop):
        echo(f"Redis stopped; its data stays in {server.home}")
    else:
        echo("Redis does not run; nothing to stop")


@redis_group.command(epilog="Example: run_worker.py redis status --json")
@_HOME
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def status(home: str | None, as_json: bool) -> None:
    """Show whether the built-in Redis runs. Exit code 0 if it does, else 1."""
    found = _or_exit(_server(home).status)
    if as_json:
        facts = {"schema": 1, "running": found.running, "state": found.state, "pid": found.pid, "url": found.url}
        echo(json.dumps({**facts, "server": found.server, "persistent": found.persistent, "home": found.home, "log": found.log}))
    else:
        echo(_sentence(found))
    sys.exit(0 if found.running else 1)


def _sentence(found: EmbeddedStatus) -> str:
    if found.running:
        kept = "its data is kept" if found.persistent else "nothing is kept"
        return f"Redis runs: {found.server}, pid {found.pid}, at {found.url}; {kept}"
    if found.state == "loading":
        return f"Redis is loading its data (pid {found.pid}); ask again in a moment"
    if found.state == "stuck":
        return f"Redis, pid {found.pid}, runs but does not answer; see {found.log}, or restart it with: {prog()} redis stop"
    return f"Redis does not run; start it with: {prog()} redis start"


def _server(home: str | None) -> EmbeddedRedis:
    return EmbeddedRedis(home or _or_exit(get_settings).home)


def _or_exit(action: Callable[[], T]) -> T:
    try:
        return action()
    except ConfigurationError as error:
        echo(f"Error: {error}", err=True)
        sys.exit(1)
