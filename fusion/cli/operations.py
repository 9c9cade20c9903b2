"""`operations`, `delete` and `reprioritise`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import click

from fusion.cli import bulk
from fusion.cli.context import Cli, confirmed, prog, shared_options
from fusion.cli.hints import Command, Group, command
from fusion.cli.output import echo, echo_json
from fusion.cli.progress import progress
from fusion.cli.recorded import recorded
from fusion.cli.tables import table_of
from fusion.cli.times import told, utc_option
from fusion.exceptions import InvalidName
from fusion.status import FOREIGN, why_not

SCHEMA = 1
#: Ids that are moved in one call.
_CHUNK = 100
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document.")
_DRY_RUN = click.option("--dry-run", is_flag=True, help="With --query: only show how many, and which.")


@click.group(
    "operations",
    cls=Group,
    epilog="\b\nExamples:\n  run_worker.py operations list\n  run_worker.py operations show 3f1d9c2ab86e\n"
    "  run_worker.py operations cancel 3f1d9c2ab86e",
)
def operations_group() -> None:
    """Show operations on the jobs of a query; cancel or run them."""


@operations_group.command("list", cls=Command, epilog="\b\nExample:\n  run_worker.py operations list --json | jq .operations")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="That many at most.")
@click.option("--offset", type=click.IntRange(0), default=0, show_default=True, help="Skip this many of the first.")
@_JSON
@shared_options
def list_(cli: Cli, limit: int, offset: int, as_json: bool) -> None:
    """Show operations: running ones first, then the most recently ended.

    MATCHED: jobs that matched when it began. WHO: its author. `waits`: it has begun, but no process runs it now.
    """
    from fusion.operations import desk

    found, total = desk.listed(cli.looking, offset, limit)
    from fusion.views.operation import OperationsView, OperationView, views_of

    shown = views_of(cli.looking, found)
    if as_json:
        echo_json(OperationsView(operations=shown, total=total, offset=offset))
        return
    if not found:
        echo("No operations")
        return
    cells: dict[str, Callable[[OperationView], str]] = {
        "status": lambda one: "waits" if one.status == "running" and not one.carrier else one.status,
        "matched": lambda one: f"{one.matched:,}",
        "done": lambda one: f"{one.done:,}",
        "skipped": lambda one: f"{one.skipped:,}",
        "refused": lambda one: f"{one.refused:,}",
    }
    order = ("id", "action", "status", "matched", "done", "skipped", "refused", "by", "query")
    echo("\n".join(table_of(OperationView, shown, order=order, cells=cells)))
    if len(found) < total:
        echo(f"{len(found)} of {total} operations")


@operations_group.command("show", cls=Command, epilog="\b\nExample:\n  run_worker.py operations show 3f1d9c2ab86e")
@click.argument("operation_id")
@_JSON
@utc_option
@shared_options
def show(cli: Cli, operation_id: str, as_json: bool) -> None:
    """Show one operation: its progress, what it left out, and why."""
    from fusion.kernel.timeutil import from_iso
    from fusion.operations import desk

    found = desk.find(cli.looking, operation_id)
    if found is None:
        _missing(operation_id)
    alive = bool(found.carrier) or found.status != "running" or desk.has_carriers(cli.looking)
    if as_json:
        from fusion.views.operation import OperationView

        echo_json(OperationView.of(found, alive))
        return
    args = " ".join(f"{name}={value}" for name, value in found.args.items())
    lines = [
        ("action", f"{found.action} {args}".strip()),
        ("query", found.query),
        ("status", found.status + (f", carried on by {found.carrier}" if found.carrier else "")),
        ("begun", f"{told(from_iso(found.began_at.encode()))} by {found.by or '-'}"),
        ("ended", told(from_iso(found.ended_at.encode())) + (f", canceled by {found.canceled_by}" if found.canceled_by else "")),
        ("jobs", f"{found.total:,} matched; {found.done:,} {found.word}, {found.skipped:,} skipped, {found.refused:,} refused"),
    ]
    if found.action == "delete":
        lines.append(("trash", f"{found.kept:,} of {found.done:,} are kept for an hour: {prog()} trash list"))
    for name, value in lines:
        echo(f"{name:<8}{value}")
    for line in bulk.reasons(found):
        echo(line)
    if not alive:
        echo(f"\nNobody carries it on: no worker or scheduler lives. Start one, or: {prog()} operations run {found.id}")


@operations_group.command("cancel", cls=Command, epilog="\b\nExample:\n  run_worker.py operations cancel 3f1d9c2ab86e")
@click.argument("operation_id")
@_JSON
@shared_options
@recorded("operations_cancel", of="operation_id")
def cancel(cli: Cli, operation_id: str, as_json: bool) -> None:
    """Cancel an operation: it changes no further job. Its changes so far stay. Exit code 1 if it had ended before, or does not exist."""
    from fusion.operations import desk

    answer = cli.broker.cancel_operation(operation_id, bulk.who())
    found = desk.find(cli.connection, operation_id)
    if found is None:
        _missing(operation_id)
    if as_json:
        bulk.echo_operation(cli, found)
    elif answer == "canceled":
        echo(f"Operation {found.id} is canceled: {found.done:,} of {found.total:,} jobs were {found.word} before, and stay so")
    if answer != "canceled":
        echo(f"Unable to cancel {found.id}: it is {answer}", err=True)
        sys.exit(1)


@operations_group.command("run", cls=Command, epilog="\b\nExample:\n  run_worker.py operations run 3f1d9c2ab86e")
@click.argument("operation_id")
@_JSON
@shared_options
@recorded("operations_run", of="operation_id")
def run(cli: Cli, operation_id: str, as_json: bool) -> None:
    """Run an operation to its end. After Ctrl-C, workers and schedulers go on with it."""
    from fusion.operations import desk

    if desk.find(cli.connection, operation_id) is None:
        _missing(operation_id)
    bulk.follow(cli, operation_id, as_json)


def _missing(operation_id: str) -> NoReturn:
    echo(f"Error: no operation {operation_id}; {prog()} operations list shows all", err=True)
    sys.exit(1)


# -- single jobs too


@command(
    example="run_worker.py delete otp-4711 otp-4712\n  run_worker.py delete --query 'state:failed error:KeyError older:1d' --dry-run"
)
@click.argument("job_ids", nargs=-1, metavar="[JOB_ID]...")
@bulk.query_options
@click.option("--purge", is_flag=True, help="For good, not into the trash.")
@_DRY_RUN
@click.option("--json", "as_json", is_flag=True, help="One JSON document with the counts.")
@shared_options
@recorded("delete", jobs="job_ids", says=("query", "detach", "purge"))
def delete(
    cli: Cli, job_ids: tuple[str, ...], query: str | None, yes: bool, detach: bool, purge: bool, dry_run: bool, as_json: bool
) -> None:
    """Delete jobs, whatever they wait for or however they ended.

    For an hour `trash restore` brings them back. A running job is not deleted: stop it first. Exit code 1 if one could not be deleted.
    """
    if bulk.check(query, job_ids, detach=detach):
        bulk.operate(cli, "delete", query or "", dry_run=dry_run, yes=yes, detach=detach, as_json=as_json, purge=purge)
        return
    _ids_only(job_ids, dry_run)
    fit, refused = _fit(job_ids)
    if fit and not confirmed(f"Delete {len(fit)} jobs?", yes):
        echo("Nothing was deleted", err=True)
        sys.exit(1)
    from fusion.cli.jobs import tell_kept
    from fusion.trash import Thrown, Trash

    with progress("deleting", len(fit), quiet=as_json) as advance:
        found = Trash(cli.connection).delete(fit, purge=purge, progress=advance) if fit else {}
    thrown = Thrown(sum(one in ("kept", "deleted") for one in found.values()), sum(one == "kept" for one in found.values()))
    cli.changed(thrown.deleted)
    if thrown.deleted and not purge:
        tell_kept(thrown, " ".join(fit[:3]) + " ..." * (len(fit) > 3))
    answers = ["deleted" if one == "kept" else one for one in found.values()]
    _told("deleted", "deleted", fit, answers, refused, as_json)


@command(
    example="run_worker.py reprioritise otp-4711 --priority high\n"
    "  run_worker.py reprioritise --query 'queue:sms tag:OTP' --priority 200 --dry-run"
)
@click.argument("job_ids", nargs=-1, metavar="[JOB_ID]...")
@click.option("--priority", required=True, metavar="PRIORITY", help="high, moderate, low or 0 to 255.")
@bulk.query_options
@_DRY_RUN
@click.option("--json", "as_json", is_flag=True, help="One JSON document with the counts.")
@shared_options
@recorded("reprioritise", jobs="job_ids", says=("query", "detach", "priority"))
def reprioritise(
    cli: Cli,
    job_ids: tuple[str, ...],
    priority: str,
    query: str | None,
    yes: bool,
    detach: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Give waiting jobs another priority.

    A job keeps its arrival number, which gives its place among the jobs of its new priority. Signed jobs are signed anew, which needs the
    secret_keys. Exit code 1 if one could not be moved.
    """
    from fusion.operations.plan import read_priority

    if bulk.check(query, job_ids, yes=yes and not job_ids, detach=detach):
        bulk.operate(
            cli,
            "reprioritise",
            query or "",
            dry_run=dry_run,
            yes=yes,
            detach=detach,
            as_json=as_json,
            priority=priority,
        )
        return
    _ids_only(job_ids, dry_run)
    try:
        number = read_priority(priority)
    except ValueError as error:
        raise click.UsageError(f"--{error}") from None
    from fusion.operations.moves import moves

    fit, refused = _fit(job_ids)
    answers: list[str] = []
    with progress("moving", len(fit), quiet=as_json) as advance:
        for start in range(0, len(fit), _CHUNK):
            part = fit[start : start + _CHUNK]
            answers += cli.broker.reprioritise(moves(cli.inspector, cli.settings.keyring, part, number), number)
            advance(len(part))
    _told("moved", "ok", fit, answers, refused, as_json)


def _ids_only(job_ids: tuple[str, ...], dry_run: bool) -> None:
    if not job_ids:
        raise click.UsageError("give job ids, or select jobs by --query")
    if dry_run:
        raise click.UsageError("--dry-run goes with --query, not with ids")


def _fit(job_ids: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    """Return the valid ids, and the reasons against the others."""
    from fusion.store.layout.names import check_job_id

    fit, refused = list[str](), dict[str, str]()
    for job_id in dict.fromkeys(job_ids):
        try:
            fit.append(check_job_id(job_id))
        except InvalidName as error:
            refused[job_id] = f"no such job; {error}"
    return fit, refused


def _told(word: str, done: str, ids: list[str], answers: list[str], refused: dict[str, Any], as_json: bool) -> None:
    from fusion.operations.actions import WHY

    for job_id, answer in zip(ids, answers, strict=True):
        if answer == "missing":
            refused[job_id] = "no such job"
        elif answer != done:
            known = answer != FOREIGN and WHY.get(answer)
            refused[job_id] = known or (answer if answer.startswith("error: ") else why_not(answer))
    count = answers.count(done)
    if as_json:
        echo(json.dumps({"schema": SCHEMA, word: count, "refused": refused}))
    else:
        echo(f"{count} jobs {word}")
    for job_id, why in refused.items():
        echo(f"Unable to change {job_id}: {why}" if word == "moved" else f"Unable to delete {job_id}: {why}", err=True)
    if refused:
        sys.exit(1)
