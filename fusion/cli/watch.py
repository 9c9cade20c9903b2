"""`--watch`: any command that shows something shows it again and again."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

import click

from fusion.cli import screen
from fusion.cli.output import kept

#: Seconds between two looks.
INTERVAL = 2.0


def watchable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --watch to a command that only reads: it is run again every two seconds, and what it says is drawn over what it said."""

    def command(cli: Any, **given: Any) -> Any:
        if not given.pop("watch"):
            return function(cli, **given)
        if given.get("as_json"):
            raise click.UsageError("--json and --watch exclude each other")

        def frame() -> str:
            with kept() as said:
                try:
                    function(cli, **given)
                except SystemExit:  # of one that ends with a code of its own: what it said is shown
                    pass
                said += cli.broken()
            return "\n".join(said)

        return screen.show(frame, INTERVAL)

    wrapped: Callable[..., Any] = update_wrapper(command, function)
    return click.option("--watch", is_flag=True, help="Show it again every two seconds; Ctrl-C ends.")(wrapped)
