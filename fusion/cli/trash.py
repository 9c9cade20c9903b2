"""`trash list | show | restore | empty`: deleted jobs, for an hour."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from fusion.cli.context import Cli, confirmed, prog, seconds, shared_options
from fusion.cli.hints import Command, Group
from fusion.cli.output import echo, echo_json
from fusion.cli.progress import progress
from fusion.cli.recorded import recorded
from fusion.cli.tables import table_of
from fusion.cli.times import told, utc_option
from fusion.cli.watch import watchable

if TYPE_CHECKING:
    from datetime import datetime

    from fusion.store.query.grammar import Query
    from fusion.store.read.trash_inspector import TrashEntry, TrashInspector

SCHEMA = 1
#: Most jobs that are listed with the reason why they could not be restored.
_SHOWN, _CHUNK = 20, 500
_Function = Callable[..., Any]


@click.group(cls=Group, name="trash")
def trash_group() -> None:
    """Show deleted jobs, and restore them.

    Jobs that `delete` and `empty` remove stay here for an hour, up to 10,000 jobs and 64 MB. Meanwhile their ids and keys are free.
    """


def _command(name: str, example: str) -> Callable[[_Function], click.Command]:
    title = "Examples" if "\n" in example else "Example"
    return trash_group.command(name, cls=Command, epilog=f"\b\n{title}:\n  {example}")


def _query(ctx: click.Context, param: click.Parameter, given: str | None) -> Query | None:
    from fusion.exceptions import InvalidQuery
    from fusion.store.query.grammar import Query

    try:
        return None if given is None else Query.parse(given)
    except InvalidQuery as error:
        raise click.BadParameter(str(error)) from None


_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document.")
_QUERY = click.option(
    "--query", callback=_query, metavar="QUERY", help="Only those that match: 'queue:sms state:failed error:Timeout'."
)


def _inspector(cli: Cli) -> TrashInspector:
    from fusion.store.access import trash_inspector_of

    return trash_inspector_of(cli.looking)


def fitting(inspector: TrashInspector, query: Query, at: datetime) -> Iterable[TrashEntry]:
    """Return the jobs of the trash that a query matches, the most recently deleted first."""
    entries = inspector.all()
    while part := list(islice(entries, _CHUNK)):
        rows = inspector.rows([entry.id for entry in part], query.fields)
        yield from (entry for entry, row in zip(part, rows, strict=True) if query.matches(entry.id, row, at))


@_command("list", "run_worker.py trash list\n  run_worker.py trash list --query queue:sms --json | jq .jobs")
@_QUERY
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="That many at most.")
@click.option(
    "--offset", type=click.IntRange(0), default=0, show_default=True, help="Skip this many of the most recently deleted."
)
@_JSON
@utc_option
@shared_options
@watchable
def list_trash(cli: Cli, query: Query | None, limit: int, offset: int, as_json: bool) -> None:
    """Show deleted jobs, the most recently deleted first.

    STATE is the job's former state, LEFT the time for which it can still be restored.
    """
    inspector, at = _inspector(cli), cli.inspector.now()
    total, size = inspector.count(), inspector.size()
    if query is None:
        found = inspector.page(offset, limit)
    else:
        found = list(islice(fitting(inspector, query, at), offset, offset + limit))
    from fusion.views.trash import DeletedJobView, TrashView

    jobs = [DeletedJobView.of(entry) for entry in found]
    if as_json:
        echo_json(TrashView(jobs=jobs, offset=offset, total=total, bytes=size))
    elif found:
        order = ("function", "id", "status", "queue", "deleted_at", "until")
        left = {"until": lambda one: seconds((one.until - at).total_seconds())}
        echo("\n".join(table_of(DeletedJobView, jobs, order=order, cells=left)))
        echo(f"\n{total} jobs in the trash, {size / 2**20:.1f} MB; to restore some: {prog()} trash restore ID...")
    else:
        cli.tell_broken()
        echo("The trash is empty" if not total else "No such job in the trash")


@_command("show", "run_worker.py trash show otp-4711")
@click.argument("job_id", metavar="ID")
@_JSON
@utc_option
@shared_options
def show(cli: Cli, job_id: str, as_json: bool) -> None:
    """Show one deleted job.

    Exit code 1 if it is not in the trash.
    """
    entry = _inspector(cli).one(job_id)
    if entry is None:
        echo(f"Error: no job {job_id} in the trash; `{prog()} trash list` lists all", err=True)
        sys.exit(1)
    if as_json:
        from fusion.views.trash import DeletedJobView

        echo_json(DeletedJobView.of(entry))
        return
    from fusion.kernel.redaction import masked_text

    lines = {
        "state": entry.status + f" (quarantined: {masked_text(entry.quarantined)})" * bool(entry.quarantined),
        "queue": entry.queue,
        "function": entry.function or "-",
        "error": entry.error_class or "-",
        "deleted": told(entry.deleted_at),
        "kept until": told(entry.until),
        "bytes": str(entry.bytes),
    }
    echo("\n".join([entry.id, *(f"  {name}: {value}" for name, value in lines.items())]))


@_command(
    "restore",
    "run_worker.py trash restore otp-4711 otp-4712\n  run_worker.py trash restore --query queue:sms\n  run_worker.py trash restore --all",
)
@click.argument("job_ids", nargs=-1, metavar="[ID]...")
@click.option("-a", "--all", "everything", is_flag=True, help="All that is in the trash.")
@_QUERY
@click.option("--dry-run", is_flag=True, help="Only show how many.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document with the counts.")
@shared_options
@recorded("trash_restore", jobs="job_ids", says=("everything", "query"))
def restore(cli: Cli, job_ids: tuple[str, ...], everything: bool, query: Query | None, dry_run: bool, as_json: bool) -> None:
    """Restore deleted jobs.

    Ended jobs return to their state, with the remaining TTL. Waiting jobs wait again at their old places; limits, unique keys and parents are
    checked again, and a future time is kept. Exit code 1 if one could not be restored.
    """
    if bool(job_ids) + everything + (query is not None) != 1:
        raise click.UsageError("give ids, --all or --query; one of them (`trash list` shows the ids)")
    from fusion.trash import Trash, why_not_restored

    trash = Trash(cli.connection)
    if query is not None:
        ids = [entry.id for entry in fitting(_inspector(cli), query, cli.inspector.now())]
    else:
        ids = [entry.id for entry in trash] if everything else list(dict.fromkeys(job_ids))
    if dry_run:
        echo(
            json.dumps({"schema": SCHEMA, "restored": len(ids), "dry_run": True})
            if as_json
            else f"{len(ids)} jobs would be restored"
        )
        return
    with progress("restoring", len(ids), quiet=as_json) as advance:
        restored, refused = trash.restore(ids, progress=advance)
    cli.changed(restored)
    if as_json:
        echo(json.dumps({"schema": SCHEMA, "restored": restored, "refused": refused}))
    else:
        echo(f"{restored} jobs restored")
    for job_id, why in islice(refused.items(), _SHOWN):
        echo(f"Unable to restore {job_id}: {why_not_restored(why)}", err=True)
    if len(refused) > _SHOWN:
        echo(f"... and {len(refused) - _SHOWN} more (--json lists all)", err=True)
    if refused:
        sys.exit(1)


@_command("empty", "run_worker.py trash empty --yes")
@click.option("-y", "--yes", is_flag=True, help="Don't ask; needed where there is no terminal.")
@shared_options
@recorded("trash_empty")
def empty(cli: Cli, yes: bool) -> None:
    """Remove all deleted jobs for good."""
    from fusion.trash import Trash

    trash = Trash(cli.connection)
    count = trash.count
    if count and not confirmed(f"Forget {count} deleted jobs for good?", yes):
        echo("Nothing was removed", err=True)
        sys.exit(1)
    with progress("emptying the trash", count) as advance:
        dropped = trash.empty(progress=advance)
    cli.changed(dropped)
    echo(f"{dropped} jobs removed from the trash")
