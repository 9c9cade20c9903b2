"""`job show`: all that is known of a job."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from fusion.cli.context import Cli, shared_options
from fusion.cli.hints import Command
from fusion.cli.output import echo
from fusion.cli.times import utc_option
from fusion.cli.watch import watchable

SCHEMA = 1

_Function = Callable[..., Any]


class _Group(Command, click.Group):
    """A command that has commands."""


@click.group(cls=_Group, name="job")
def job_group() -> None:
    """Show all that is known of a job."""


def _command(name: str, example: str) -> Callable[[_Function], click.Command]:
    title = "Examples" if "\n" in example else "Example"
    return job_group.command(name, cls=Command, epilog=f"\b\n{title}:\n  {example}")


@_command("show", "run_worker.py job show otp-4711\n  run_worker.py job show otp-4711 --json | jq '.waits[0].text'")
@click.argument("job_id")
@click.option("--trace", is_flag=True, help="All of the traceback, not only its last lines.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@utc_option
@shared_options
@watchable
def show(cli: Cli, job_id: str, trace: bool, as_json: bool) -> None:
    """Show all that is known of a job.

    Its state and why it waits, with its place; its way so far, each run that did not finish, arguments, callbacks, and the jobs that it is
    bound to. Arguments, results and what errors said are masked; pickles are not looked into.
    """
    from fusion.cli.job_render import lines
    from fusion.jobs.sheet import sheet
    from fusion.jobs.sheet_document import document
    from fusion.store.access import sheet_inspector_of
    from fusion.store.layout.names import check_job_id

    found = sheet(sheet_inspector_of(cli.looking), check_job_id(job_id))
    if as_json:
        echo(json.dumps({"schema": SCHEMA, **document(found, details=True, trace=trace)}))
        return
    for line in lines(found, trace=trace):
        echo(line)
