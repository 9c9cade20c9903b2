"""The commands `batches` and `batch show | graph | cancel`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import click

from fusion.cli.context import Cli, prog, seconds, shared_options
from fusion.cli.hints import Command, Group
from fusion.cli.output import echo, echo_json
from fusion.cli.progress import progress
from fusion.cli.recorded import recorded
from fusion.cli.tables import table, table_of
from fusion.cli.watch import watchable
from fusion.exceptions import NoSuchBatchError

if TYPE_CHECKING:
    from fusion.views.batch import BatchView


SCHEMA = 1


_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document.")


@click.command(
    "batches", cls=Command, epilog="\b\nExamples:\n  run_worker.py batches\n  run_worker.py batches --json | jq .batches"
)
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="That many at most.")
@click.option("--offset", type=click.IntRange(0), default=0, show_default=True, help="Skip this many of the newest.")
@_JSON
@shared_options
def batches(cli: Cli, limit: int, offset: int, as_json: bool) -> None:
    """Show batches, the newest first.

    OPEN members, jobs and batches, have not ended; OTHER have ended without finishing. STATUS: open (it accepts more members), running,
    success, complete (all ended, and some did not finish), canceled.
    """
    from fusion.store.access import batch_inspector_of

    inspector, at = batch_inspector_of(cli.looking), cli.inspector.now()
    found, total = inspector.listed(offset, limit), inspector.count()
    from fusion.views.batch import BatchesView, BatchView

    shown = [BatchView.of(info) for info in found]
    if as_json:
        echo_json(BatchesView(batches=shown, total=total, offset=offset))
        return
    if not found:
        echo("No batches")
        return
    for line in table_of(BatchView, shown, at, cells={"failed": _others}):
        echo(line)
    if len(found) < total:
        echo(f"{len(found)} of {total} batches")


def _others(one: BatchView) -> str:
    """Return how many members ended without finishing."""
    return str(one.failed + one.canceled + one.stopped + one.deleted)


@click.group("batch", cls=Group)
def batch_group() -> None:
    """Show, draw or cancel a batch."""


@batch_group.command("show", cls=Command, epilog="\b\nExample:\n  run_worker.py batch show 4f1d9c2ab86e4a20c3d1b7f5")
@click.argument("batch_id", metavar="BATCH_ID")
@click.option("--limit", type=click.IntRange(0, 10_000), default=20, show_default=True, help="That many members at most.")
@click.option("--offset", type=click.IntRange(0), default=0, show_default=True, help="Skip this many of the first.")
@_JSON
@shared_options
def show(cli: Cli, batch_id: str, limit: int, offset: int, as_json: bool) -> None:
    """Show a batch and its members, in the order in which they were added. A batch in it is shown as #BATCH_ID."""
    from fusion.store.access import batch_inspector_of

    inspector = batch_inspector_of(cli.looking)
    info = inspector.info(batch_id)
    if info is None:
        _unknown(batch_id)
    members = inspector.page(batch_id, offset, limit)
    if as_json:
        from fusion.views.batch import BatchWithMembersView, MemberView

        shown = [MemberView(id=member, status=status) for member, status in members]
        echo_json(BatchWithMembersView.of(info, members=shown, offset=offset))
        return
    other = ", ".join(f"{count} {name}" for name, count in info.outcomes.items() if count)
    named = f" ({info.name})" if info.name else ""
    echo(
        f"{info.id}{named}: {info.status}; {info.total} in all, {info.open} open, {info.finished} finished{other and ', ' + other}"
    )
    for name in ("parent", "on_complete", "on_success"):
        if value := getattr(info, name):
            echo(f"  {name.replace('_', ' ')}: {value}")
    if info.abandoned:
        echo("  its producer did not close it")
    for line in table(("FUNCTION", "MEMBER", "STATUS", "AGE"), _rows(cli, members)) if members else []:
        echo(line)


def _rows(cli: Cli, members: Sequence[tuple[str, str | None]]) -> list[tuple[str, str, str, str]]:
    """Return a row for each member: what it does, its id, how it ended, and since when; failed ones first."""
    from fusion.store.access import search_inspector_of
    from fusion.store.read.found_jobs import FIELDS, found_job

    jobs = [member for member, _ in members if not member.startswith("#")]
    rows = search_inspector_of(cli.looking).rows(jobs, FIELDS)
    found = {one: found_job(one, row, None, {}) for one, row in zip(jobs, rows, strict=True) if row is not None}
    at, lines = cli.inspector.now(), []
    for member, status in sorted(members, key=lambda one: one[1] != "failed"):
        job = found.get(member)
        since = seconds(max(0.0, (at - job.since).total_seconds())) if job and job.since else "-"
        lines.append((job.function if job and job.function else "-", member, status or "gone", since))
    return lines


@batch_group.command("graph", cls=Command, epilog="\b\nExample:\n  run_worker.py batch graph 4f1d9c2ab86e4a20c3d1b7f5 --watch 2")
@click.argument("batch_id", metavar="BATCH_ID")
@_JSON
@shared_options
@watchable
def graph(cli: Cli, batch_id: str, as_json: bool) -> None:
    """Draw a batch: its members, each behind all that it waits for, and the jobs that follow, with a bar of what each waited and ran.

    AFTER names what a job waits for, or waited for. Over 300 members are counted by function and state.
    """
    from fusion.cli.graph import batch_lines
    from fusion.jobs.batch_graph import batch_graph
    from fusion.store.access import batch_inspector_of

    inspector = batch_inspector_of(cli.looking)
    info = inspector.info(batch_id)
    if info is None:
        _unknown(batch_id)
    found = batch_graph(inspector, cli.inspector, info)
    if as_json:
        from fusion.views.batch import BatchGraphView

        echo_json(BatchGraphView.of(found))
        return
    for line in batch_lines(found, cli.inspector.now()):
        echo(line)


@batch_group.command("cancel", cls=Command, epilog="\b\nExample:\n  run_worker.py batch cancel 4f1d9c2ab86e4a20c3d1b7f5")
@click.argument("batch_id", metavar="BATCH_ID")
@_JSON
@shared_options
@recorded("batch_cancel", of="batch_id")
def cancel(cli: Cli, batch_id: str, as_json: bool) -> None:
    """Cancel a batch and the batches in it: no more jobs are accepted, waiting jobs are canceled, running ones are not retried."""
    from fusion.batch import Batch

    try:
        with progress("canceling", quiet=as_json) as advance:
            canceled, running = Batch(id=batch_id, connection=cli.connection).cancel(progress=advance)
    except NoSuchBatchError:
        _unknown(batch_id)
    cli.changed(canceled + running)
    if as_json:
        from fusion.views.batch import BatchCanceledView

        echo_json(BatchCanceledView(id=batch_id, canceled=canceled, running=running))
    else:
        echo(f"{canceled} jobs canceled" + f", {running} run and will not run again" * bool(running))


def _unknown(batch_id: str) -> NoReturn:
    echo(f"Error: there is no batch {batch_id}; `{prog()} batches` lists all", err=True)
    sys.exit(1)
