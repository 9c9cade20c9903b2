"""`dashboard`: the pages alone, without the API."""

from __future__ import annotations

import sys
from typing import Any

import click

from fusion.cli.context import Cli, shared_options
from fusion.cli.hints import Command
from fusion.cli.server import serve, serving_options
from fusion.cli.worker import start_embedded
from fusion.settings.flags import DASHBOARD


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  run_worker.py dashboard --no-auth\n  run_worker.py dashboard --embedded --no-auth\n"
    "  run_worker.py server token anna --scope operate --file tokens.txt\n  run_worker.py dashboard --tokens tokens.txt --host 0.0.0.0",
)
@click.option("--embedded", is_flag=True, help="Use the built-in Redis; start it unless it runs.")
@click.option("--read-only", is_flag=True, help="Only show; refuse every change, whatever the token.")
@serving_options(DASHBOARD)
@shared_options
def dashboard(cli: Cli, embedded: bool, read_only: bool, **given: Any) -> None:
    """Serve the dashboard.

    It needs a token, which opens it for 12 hours, unless --no-auth is given. `server --dashboard` serves the same pages beside the API. INT or
    TERM ends it when all open requests are answered.
    """
    if embedded:
        cli.url = start_embedded(cli)
    sys.exit(serve(cli, dashboard=True, api=False, read_only=read_only, **given))
