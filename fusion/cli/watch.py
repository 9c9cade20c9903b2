"""`--watch`: repeat a command that only shows something."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

import click

from fusion.cli import screen
from fusion.cli.output import kept

#: Seconds between two runs.
INTERVAL = 2.0


def watchable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --watch to a read-only command: it runs again every two seconds, and its output is drawn over the last one."""

    def command(cli: Any, **given: Any) -> Any:
        if not given.pop("watch"):
            return function(cli, **given)
        if given.get("as_json"):
            raise click.UsageError("--json and --watch exclude each other")
        if given.get("reveal"):
            raise click.UsageError("--reveal and --watch exclude each other: each look has its own entry in the audit")

        def frame() -> str:
            with kept() as said:
                try:
                    function(cli, **given)
                except SystemExit:  # a command that ends with its own exit code: show its output
                    pass
                said += cli.broken()
            return "\n".join(said)

        return screen.show(frame, INTERVAL)

    wrapped: Callable[..., Any] = update_wrapper(command, function)
    return click.option("--watch", is_flag=True, help="Show it again every two seconds; Ctrl-C ends.")(wrapped)
