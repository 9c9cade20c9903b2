"""`suspend` and `resume`: all workers at once."""

from __future__ import annotations

import sys

import click

from fusion.cli.context import Cli, shared_options
from fusion.cli.hints import command


@command(example="run_worker.py suspend --duration 600")
@click.option("--duration", type=int, metavar="SECONDS", help="Resume by itself after so long.  [default: never]")
@shared_options
def suspend(cli: Cli, duration: int | None) -> None:
    """Let no worker start another job.

    Jobs that run are completed, and jobs can still be enqueued. `resume` lets the workers go on.
    """
    if duration is not None and duration < 1:
        click.echo("Duration must be an integer greater than 1", err=True)
        sys.exit(1)
    cli.broker.suspend(duration)
    if duration:
        click.echo(
            f"Suspending workers for {duration} seconds. No new jobs will be started during that time,"
            " but then will automatically resume"
        )
    else:
        click.echo("Suspending workers.  No new jobs will be started.  But current jobs will be completed")


@command(example="run_worker.py resume")
@shared_options
def resume(cli: Cli) -> None:
    """Let suspended workers start jobs again."""
    cli.broker.resume()
    click.echo("Resuming workers.")
