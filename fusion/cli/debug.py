"""`debug`: commands for developers of Fusion."""

from __future__ import annotations

import click

from fusion.cli.context import Cli, shared_options
from fusion.cli.hints import Command, Group
from fusion.cli.output import echo


@click.group(cls=Group, name="debug")
def debug_group() -> None:
    """Show what Fusion sends to Redis."""


@debug_group.command(
    "script",
    cls=Command,
    epilog="\b\nExamples:\n  run_worker.py debug script turn\n  run_worker.py debug script cancel --server 6.2",
)
@click.argument("name")
@click.option(
    "--server", default="7.0", show_default=True, metavar="VERSION", help="The version of Redis that the script is for."
)
@shared_options
def script(cli: Cli, name: str, server: str) -> None:
    """Print a Lua script as Redis receives it, with this fleet's settings in it.

    A line --@FILE:LINE names the place in fusion/store/lua from which the lines below it come. Redis is not needed.
    """
    from fusion.store.access import script_names, script_text

    try:
        version = tuple(int(part) for part in server.split("."))
    except ValueError:
        raise click.BadParameter(f"{server!r} is not a version; use 6.2 or 7.0", param_hint="--server") from None
    names = script_names()
    if name not in names:
        from difflib import get_close_matches

        near = get_close_matches(name, names, n=1)
        raise click.UsageError(
            f"no script {name!r}; " + (f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names)}")
        )
    echo(script_text(name, cli.settings, version).rstrip("\n"))
