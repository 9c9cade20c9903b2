"""`outbox run | status | retry | delete`: database rows that become jobs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from importlib import import_module
from typing import Any

import click

from fusion.cli.context import Cli, confirmed, prog, seconds, shared_options
from fusion.cli.hints import Command, Group
from fusion.cli.logs import long_running, set_up_logging
from fusion.cli.output import echo
from fusion.cli.tables import table
from fusion.cli.times import told, utc_option
from fusion.cli.worker import level_of, pid_file

SCHEMA = 1
_Function = Callable[..., Any]


@click.group(cls=Group, name="outbox")
def outbox_group() -> None:
    """Enqueue the jobs that transactions wrote as rows; show refused ones.

    An outbox is three tables of your database. A transaction writes a job as a row; the job is enqueued once the transaction is committed.
    """


def _command(name: str, example: str) -> Callable[[_Function], click.Command]:
    title = "Examples" if "\n" in example else "Example"
    return outbox_group.command(name, cls=Command, epilog=f"\b\n{title}:\n  {example}")


_DATABASE = click.option(
    "--database",
    required=True,
    envvar="FUSION_OUTBOX_DATABASE",
    metavar="URL",
    help="Where the rows are: an URL of SQLAlchemy's, or django:ALIAS.  [FUSION_OUTBOX_DATABASE]",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document.")
_ALL = click.option("--all", "everything", is_flag=True, help="All that are parked.")


def _ledger(database: str) -> Any:
    return import_module("fusion.contrib.outbox.opened").opened(database)


@_command(
    "run",
    "run_worker.py outbox run --database postgresql+psycopg://app@db/shop\n  run_worker.py outbox run --database django:default --burst",
)
@_DATABASE
@click.option(
    "--keep", type=click.FloatRange(0), default=600.0, show_default=True, metavar="SECONDS", help="Keep forwarded rows."
)
@click.option(
    "--poll",
    type=click.FloatRange(0.01),
    default=0.25,
    show_default=True,
    metavar="SECONDS",
    help="Between two searches for rows.",
)
@click.option("--burst", is_flag=True, help="End when nothing is left to forward.")
@long_running
@shared_options
def run(cli: Cli, database: str, keep: float, poll: float, burst: bool, pid: str | None, **given: Any) -> None:
    """Forward rows until it is stopped.

    Any number may run; one of them works, and another takes over if it dies. Each row becomes exactly one job, whatever process is killed. The jobs
    of a queue are enqueued in the order of their batches. Forwarded rows are kept for a while, to be sent again if Redis loses accepted jobs.
    """
    level, log_format, date_format = level_of(cli, given), given.pop("log_format"), given.pop("date_format")
    ledger = _ledger(database)  # must come first: a Django project has its own settings and logging
    settings = cli.load(**given)
    set_up_logging(settings, level, log_format, date_format)
    from fusion.kernel import titles

    titles.show("outbox", settings.name or "")
    process = import_module("fusion.contrib.outbox.process")
    with pid_file(pid):
        code = process.OutboxProcess(settings, ledger, keep=keep, poll=poll, burst=burst).run()
    sys.exit(code)


@_command("status", "run_worker.py outbox status --database django:default\n  run_worker.py outbox status --json | jq .parked")
@_DATABASE
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="At most this many parked rows.")
@_JSON
@utc_option
@shared_options
def status(cli: Cli, database: str, limit: int, as_json: bool) -> None:
    """Show how many rows wait, and parked rows: those that Redis refused, and why.

    Rows refused for a full queue, or for a parent job that does not exist yet, are retried automatically.
    """
    ledger = _ledger(database)
    counts, rows = ledger.counts(), ledger.parked(limit)
    if as_json:
        echo(json.dumps({"schema": SCHEMA, **counts, "rows": rows}))
        return
    now = datetime.now(timezone.utc).timestamp()
    waits = f", the oldest for {seconds(max(0.0, now - counts['oldest']))}" if counts["oldest"] is not None else ""
    echo(
        f"{counts['waiting']} rows wait, {counts['on_the_way']} are on their way{waits}; {counts['kept']} were forwarded and are kept"
    )
    echo(f"Forwarder: {counts['forwarder']}" if counts["held_until"] > now else f"Nobody forwards: start `{prog()} outbox run`")
    if rows:
        found = [(str(row["id"]), row["job_id"], row["queue"], told(_moment(row["written_at"])), row["reason"]) for row in rows]
        echo()
        echo("\n".join(table(("ROW", "ID", "QUEUE", "WRITTEN", "REASON"), found)))
        echo(f"\n{counts['parked']} parked; to try some again: {prog()} outbox retry ROW...")


def _moment(unix: float) -> datetime:
    return datetime.fromtimestamp(unix, timezone.utc)


def _chosen(ledger: Any, rows: tuple[int, ...], everything: bool) -> list[int]:
    if everything == bool(rows):
        raise click.UsageError("name rows, as `outbox status` shows them, or --all")
    return [row["id"] for row in ledger.parked()] if everything else list(rows)


@_command("retry", "run_worker.py outbox retry 17 18\n  run_worker.py outbox retry --all")
@click.argument("rows", type=int, nargs=-1, metavar="[ROW]...")
@_ALL
@_DATABASE
@_JSON
@shared_options
def retry(cli: Cli, rows: tuple[int, ...], everything: bool, database: str, as_json: bool) -> None:
    """Retry parked rows."""
    ledger = _ledger(database)
    chosen = _chosen(ledger, rows, everything)
    done = ledger.retry(chosen)
    echo(json.dumps({"schema": SCHEMA, "retried": done}) if as_json else f"{done} rows wait again")
    sys.exit(0 if everything or done == len(chosen) else 1)


@_command("delete", "run_worker.py outbox delete 17\n  run_worker.py outbox delete --all --yes")
@click.argument("rows", type=int, nargs=-1, metavar="[ROW]...")
@_ALL
@click.option("--yes", is_flag=True, help="Without asking.")
@_DATABASE
@_JSON
@shared_options
def delete(cli: Cli, rows: tuple[int, ...], everything: bool, yes: bool, database: str, as_json: bool) -> None:
    """Delete parked rows, which then never become jobs."""
    ledger = _ledger(database)
    chosen = _chosen(ledger, rows, everything)
    if not confirmed(f"Delete {len(chosen)} rows for good?", yes):
        sys.exit(1)
    done = ledger.drop(chosen)
    echo(json.dumps({"schema": SCHEMA, "deleted": done}) if as_json else f"{done} rows are deleted")
    sys.exit(0 if everything or done == len(chosen) else 1)
