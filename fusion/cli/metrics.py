"""`metrics`: what Prometheus reads of the fleet, printed once or served."""

from __future__ import annotations

import sys
from typing import Any

import click

from fusion.cli.context import Cli, shared_options
from fusion.cli.hints import Command
from fusion.cli.output import echo
from fusion.cli.server import serve, serving_options
from fusion.cli.setting_flags import given_settings
from fusion.settings.flags import METRICS


class _Address(click.ParamType[tuple[str, int]]):
    name = "address"

    def convert(self, value: str | tuple[str, int], param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Read `PORT`, `HOST:PORT` or `[HOST]:PORT`."""
        if isinstance(value, tuple):
            return value
        host, _, port = value.rpartition(":")
        if not (port.isascii() and port.isdecimal() and int(port) < 65536):
            self.fail(f"{value[:80]!r}: use a port like 9808, or HOST:PORT like 0.0.0.0:9808", param, ctx)
        return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  run_worker.py metrics\n  run_worker.py metrics --listen 9808 --no-auth\n"
    "  run_worker.py server token prometheus --scope read --file tokens.txt\n"
    "  run_worker.py metrics --listen 0.0.0.0:9808 --tokens tokens.txt",
)
@click.option(
    "--listen",
    type=_Address(),
    metavar="[HOST:]PORT",
    help="Serve /metrics there; 0 for any free port.  [default host: 127.0.0.1]",
)
@serving_options(METRICS)
@shared_options
def metrics(cli: Cli, listen: tuple[str, int] | None, **given: Any) -> None:
    """Print metrics of the fleet for Prometheus, or serve them.

    The figures come from samples that the fleet keeps in Redis; `server` has the same page at /metrics. What one worker does is on its own probe
    port. Callers need a token of the scope read, unless --no-auth is given.
    """
    from fusion.metrics.process import needed

    needed()
    if listen:
        sys.exit(serve(cli, dashboard=False, listen=listen, **given))
    from fusion.web.metrics import FleetPage

    for name in ("no_auth", "pid", "log_format", "date_format"):
        given.pop(name)
    settings = cli.load(**given_settings(METRICS, given))
    cli.inspector.now()  # an error here says what is wrong; the page would only show that Redis is not there
    page = FleetPage(cli.connection, compat_rq=settings.metrics_compat == "rq")
    echo(page.write().decode(), nl=False)
