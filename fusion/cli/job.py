"""`job show`, `job graph` and `job copy`: all details of a job, its graph, and an edited copy of an ended one. `job cancel`, `stop`, `requeue`
and `delete` are the commands of the same names."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import update_wrapper
from shlex import quote
from typing import Any

import click

from fusion.cli.cancel import cancel, stop
from fusion.cli.context import Cli, prog, shared_options
from fusion.cli.hints import Command, Group
from fusion.cli.jobs import requeue
from fusion.cli.operations import delete
from fusion.cli.output import echo, echo_json
from fusion.cli.recorded import recorded
from fusion.cli.times import utc_option
from fusion.cli.watch import watchable

SCHEMA = 1

_Function = Callable[..., Any]


@click.group(cls=Group, name="job")
def job_group() -> None:
    """Show one job; copy, cancel, stop, requeue or delete it."""


def _command(name: str, example: str) -> Callable[[_Function], click.Command]:
    title = "Examples" if "\n" in example else "Example"
    return job_group.command(name, cls=Command, epilog=f"\b\n{title}:\n  {example}")


@_command("show", "run_worker.py job show otp-4711\n  run_worker.py job show otp-4711 --json | jq '.waits[0].text'")
@click.argument("job_id")
@click.option("--trace", is_flag=True, help="The whole traceback, not only its last lines.")
@click.option("--reveal", is_flag=True, help="Masked values too, without masks. The audit gets an entry with your name first.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@utc_option
@shared_options
@recorded("reveal", jobs="job_id", only="reveal")
@watchable
def show(cli: Cli, job_id: str, trace: bool, reveal: bool, as_json: bool) -> None:
    """Show all details of a job.

    Its state, why it waits and at which place; its timeline, each run that did not finish, arguments, callbacks, and related jobs. Arguments,
    results, error messages and log lines are masked; pickles are not opened.

    --reveal adds the masked values as they are stored, if the audit takes its entry. What is a `fusion.Secret` stays masked, and so do log lines,
    which were masked when they were written.
    """
    if reveal and as_json:
        raise click.UsageError("--reveal and --json exclude each other: masked values are shown to a person, one job at a time")
    from fusion.cli.job_render import lines, revealed_lines
    from fusion.exceptions import InvalidName, NoSuchJobError
    from fusion.store.access import sheet_inspector_of
    from fusion.store.layout.names import check_job_id
    from fusion.views.job_sheet import JobView, read_job

    try:
        found = read_job(sheet_inspector_of(cli.looking), check_job_id(job_id))
    except (NoSuchJobError, InvalidName):
        if told := _instead(cli, job_id):
            raise NoSuchJobError(told) from None
        raise
    if as_json:
        echo_json(JobView.of(found, about=True, trace=trace, log=True))
        return
    for line in [*lines(found, trace=trace), *(revealed_lines(found) if reveal else ())]:
        echo(line)


@_command("graph", "run_worker.py job graph merge-1\n  run_worker.py job graph merge-1 --watch 2")
@click.argument("job_id")
@click.option("--limit", type=click.IntRange(1, 1000), default=1000, show_default=True, help="That many jobs at most.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@shared_options
@watchable
def graph(cli: Cli, job_id: str, limit: int, as_json: bool) -> None:
    """Draw the graph of a job: each job behind all that it waits for, with its state, and a bar of what it waited and ran.

    AFTER names what it waits for, or waited for. Over 300 jobs are grouped by function. `tree` shows what hangs on what from one job's view.
    """
    from fusion.cli.graph import graph_lines
    from fusion.jobs.tree import tree
    from fusion.store.access import inspector_of
    from fusion.store.layout.names import check_job_id

    found = tree(inspector_of(cli.looking), check_job_id(job_id), limit)
    if as_json:
        from fusion.views.job import TreeView

        echo_json(TreeView.of(found))
        return
    for line in graph_lines(found, cli.inspector.now()):
        echo(line)


#: Other things whose id may have been given, and the command that shows each.
_SHOWN_BY = {
    "queue": "info {}",
    "worker": "info --only-workers",
    "batch": "batch show {}",
    "cron entry": "cron history {}",
    "concurrency key": "limit show {}",
    "operation": "operations show {}",
    "failure group": "failures {}",
}


def _instead(cli: Cli, name: str) -> str:
    """Return a sentence with other things of this name, and the commands that show them; empty if there are none."""
    from fusion.store.access import names_inspector_of, trash_inspector_of

    if trash_inspector_of(cli.looking).one(name) is not None:
        return f"job {name} was deleted and is in the trash; to bring it back: {prog()} trash restore {name}"
    kinds = names_inspector_of(cli.looking).kinds(name)
    shows = [f"{'an' if kind == 'operation' else 'a'} {kind}: {prog()} {_SHOWN_BY[kind].format(quote(name))}" for kind in kinds]
    return f"no job {name!r}, but that is {'; and '.join(shows)}" if shows else ""


def _of_json(kind: type, what: str) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    def read(ctx: click.Context, param: click.Parameter, given: str | None) -> Any:
        from fusion.exceptions import DeserializationError
        from fusion.kernel.serializers import JSONSerializer

        if given is None:
            return None
        try:
            found = JSONSerializer().parse(given.encode())
        except (DeserializationError, UnicodeEncodeError) as error:
            raise click.BadParameter(f"{error}; give {what}") from None
        if not isinstance(found, kind):
            raise click.BadParameter(f"give {what}")
        return found

    return read


@_command(
    "copy",
    'run_worker.py job copy otp-4711 --args \'[{"to": "+4915100000", "body": "***"}]\'\n'
    "  run_worker.py job copy report-7 --queue slow",
)
@click.argument("job_id")
@click.option("--args", callback=_of_json(list, "a JSON list"), metavar="JSON", help="Other arguments, a list.")
@click.option("--kwargs", callback=_of_json(dict, "a JSON object"), metavar="JSON", help="Other keyword arguments, an object.")
@click.option("-q", "--queue", metavar="NAME", help="Another queue.")
@click.option("--priority", metavar="PRIORITY", help="Another one: high, moderate, low, or 0 to 255.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@shared_options
def copy(
    cli: Cli,
    job_id: str,
    args: list[Any] | None,
    kwargs: dict[str, Any] | None,
    queue: str | None,
    priority: str | None,
    as_json: bool,
) -> None:
    """Enqueue a copy of a job that has ended, with other arguments.

    A masked value as `job show` shows it stands for the original's value. The copy has the original's options, but not its unique key, batch,
    parents or cron entry. The original stays as it is, and lists its copies. Pickled calls can't be copied.
    """
    from fusion.enqueue.copying import Edit, copy_job
    from fusion.enqueue.kinds import PRIORITY
    from fusion.exceptions import OptionError
    from fusion.store.layout.names import check_job_id

    try:
        wanted = None if priority is None else PRIORITY.from_text(priority)
        made = copy_job(cli.connection, check_job_id(job_id), Edit(args, kwargs, queue, wanted))
    except (OptionError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        echo(
            json.dumps(
                {"schema": SCHEMA, "job_id": made.id, "copied_from": job_id, "queue": made.origin, "status": made.last_status}
            )
        )
    else:
        echo(f"Enqueued {made.id} to {made.origin}, a copy of {job_id}")


#: Options of the commands for many jobs that can be used with ids.
_OF_IDS = {"as_json", "purge", "url", "config", "prefix", "path", "verbose"}


def _of_ids(whole: click.Command, verb: str, *options: click.Option) -> None:
    """Return the command of this name for given ids. It calls the original command, which is the one in the audit."""

    def command(**given: Any) -> None:
        click.get_current_context().invoke(whole, **given)

    assert whole.callback is not None
    ids = click.Argument(["job_ids"], nargs=-1, required=True, metavar="JOB_ID...")
    kept = [one for one in whole.params if one.name in _OF_IDS]
    told = f"{verb}\n\nLike `{whole.name}`, which can also select jobs by their properties. Exit code 1 if it failed for one."
    example = f"\b\nExample:\n  run_worker.py job {whole.name} otp-4711 otp-4712"
    made = Command(
        whole.name, params=[ids, *options, *kept], callback=update_wrapper(command, whole.callback), help=told, epilog=example
    )
    job_group.add_command(made)


_YES = click.Option(["-y", "--yes"], is_flag=True, help="Don't ask; needed where there is no terminal.")
_of_ids(cancel, "Cancel these jobs, so that they do not run, or not run again.")
_of_ids(stop, "Stop these jobs, running ones included.")
_of_ids(requeue, "Put these jobs back to the queues they came from.")
_of_ids(delete, "Delete these jobs; `trash restore` brings them back for an hour.", _YES)
