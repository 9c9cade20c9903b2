"""`scheduled` and `reschedule`: jobs that wait for a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import click

from fusion.cli.context import Cli, prog, seconds, shared_options
from fusion.cli.hints import command
from fusion.cli.output import echo, echo_json
from fusion.cli.recorded import recorded
from fusion.cli.tables import table_of
from fusion.cli.times import told, utc_option
from fusion.cli.watch import watchable
from fusion.exceptions import InvalidName
from fusion.kernel.timeutil import parse_moment, parse_seconds, to_iso

if TYPE_CHECKING:
    from datetime import timedelta

SCHEMA = 1


def moment_option(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Parse an option whose value is a time with a zone."""
    try:
        return None if value is None else parse_moment(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def due(moment: datetime, at: datetime) -> str:
    """Return for a sentence: `due 2030-01-31 09:00:00 +0100 (in 5 min)`, or `due now`. `at`: now, by the server's clock."""
    return f"due {told(moment)} ({_until(moment, at)})" if moment > at else "due now"


def _until(moment: datetime, at: datetime) -> str:
    left = (moment - at).total_seconds()
    return f"in {seconds(left)}" if left > 0 else "due"


# -- scheduled


@command(
    example="run_worker.py scheduled\n  run_worker.py scheduled --limit 100 --offset 100\n  run_worker.py scheduled --json | jq .jobs"
)
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="That many at most.")
@click.option("--offset", type=click.IntRange(0), default=0, show_default=True, help="Skip this many of the soonest.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@utc_option
@shared_options
@watchable
def scheduled(cli: Cli, limit: int, offset: int, as_json: bool) -> None:
    """Show the jobs that wait for a time, the soonest first.

    It shows jobs of all queues: those enqueued for later, those to be retried, and those held back. `due` means that any worker may move it to its
    queue now.
    """
    from fusion.jobs.scheduled import waiting_jobs
    from fusion.views.job import ScheduledJobView, ScheduledView

    total, at = cli.onlooker.scheduled_count(), cli.inspector.now()
    found = cli.onlooker.scheduled(offset, limit)
    if not found:
        cli.tell_broken()
    jobs = [ScheduledJobView.of(job, at) for job in waiting_jobs(cli.inspector, found)]
    if as_json:
        echo_json(ScheduledView(at=at, total=total, offset=offset, jobs=jobs))
        return
    if not total:
        echo("No scheduled jobs")
        return
    if jobs:
        cells: dict[str, Callable[[ScheduledJobView], str]] = {
            "due_in": lambda job: _until(job.due_at, at),
            "why": lambda job: f"{job.why}: {job.reason}" if job.reason else job.why,
        }
        order = ("due_at", "due_in", "description", "id", "queue", "why")
        echo("\n".join(table_of(ScheduledJobView, jobs, order=order, cells=cells, left=("due_in",))) + "\n")
    last = offset + len(jobs)
    shown = f", shown: {offset + 1} to {last}" if jobs else f", none from {offset} on"
    echo(f"{total} scheduled, of all queues{shown}")
    if last < total and jobs:
        again = f" --limit {limit}" if limit != 20 else ""
        echo(f"More: {prog()} scheduled --offset {last}{again}")


# -- reschedule


def _moment_or_delay(ctx: click.Context, param: click.Parameter, value: str) -> datetime | timedelta | float:
    try:
        return parse_seconds(value.removeprefix("+"))
    except ValueError:
        pass
    try:
        return parse_moment(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}, or a time from now like +5m, +2h, +1d") from None


@command(example="run_worker.py reschedule otp-4711 +5m\n  run_worker.py reschedule otp-4711 2030-01-31T09:00+01:00")
@click.argument("job_id")
@click.argument("when", callback=_moment_or_delay)
@click.option("--json", "as_json", is_flag=True, help="One JSON document with the new time.")
@shared_options
@recorded("reschedule", jobs="job_id", says=("when",))
def reschedule(cli: Cli, job_id: str, when: datetime | float, as_json: bool) -> None:
    """Give a scheduled job another time.

    WHEN is a time with its zone, or how long from now: +5m, +2h. One in the past is now. A job that waits for a retry can be rescheduled too.
    """
    from fusion.job import Job
    from fusion.store.layout.names import check_job_id

    try:
        moment = Job(check_job_id(job_id), {}, cli.connection).reschedule(when)
    except InvalidName:
        raise
    except ValueError as error:
        raise click.UsageError(str(error).removeprefix("reschedule: ")) from None
    if as_json:
        echo(json.dumps({"schema": SCHEMA, "id": job_id, "due_at": to_iso(moment)}))
    else:
        echo(f"Rescheduled {job_id}: {due(moment, cli.inspector.now())}")
