"""`failures` and `quarantine`, and the options that select failed jobs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from fusion.cli import bounds, bulk, names
from fusion.cli.context import Cli, prog, shared_options
from fusion.cli.control import tell_unknown
from fusion.cli.hints import command
from fusion.cli.output import echo, echo_json
from fusion.cli.progress import progress
from fusion.cli.recorded import recorded
from fusion.cli.tables import folded
from fusion.cli.times import utc_option
from fusion.cli.watch import watchable
from fusion.kernel.timeutil import now, parse_seconds
from fusion.status import FOREIGN, why_not

if TYPE_CHECKING:
    from fusion.jobs.failures import FailedFilter, Failure
    from fusion.store.read.inspector import Inspector

SCHEMA = 1
#: Jobs that one round trip reads.
_LOOK = 1000


def age(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Parse an option whose value is an age; return seconds."""
    try:
        found = None if value is None else parse_seconds(value)
    except ValueError:
        found = -1.0
    if found is not None and found < 0:
        raise click.BadParameter(f"{value!r}: use seconds, or a text like 90s, 5m, 2h, 1d")
    return found


_FILTER = (
    click.option(
        "--queue", metavar="NAME", help="Only those that came from this queue; a wildcard will do, as in all these options."
    ),
    click.option("--function", metavar="NAME", help="Only calls of this function: tasks.sms.sendSMS, 'tasks.sms.*'."),
    click.option("--error", metavar="CLASS", help="Only those of this error class or one below it: ConnectionError."),
    click.option("--older-than", callback=age, metavar="AGE", help="Only those that failed longer ago: 90s, 5m, 2h, 1d."),
    click.option("--newer-than", callback=age, metavar="AGE", help="Only those that failed since."),
)


def filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --queue --function --error --older-than --newer-than."""
    for option in reversed(_FILTER):
        function = option(function)
    return function


def chosen(include_quarantined: bool = False, **given: Any) -> FailedFilter:
    """Return the filter that the options of `filter_options` describe."""
    from fusion.jobs.failures import FailedFilter

    if given["queue"] is not None:
        names.check(given["queue"], patterns=True)
    return FailedFilter(include_quarantined=include_quarantined, **given)


def found_failures(inspector: Inspector, wanted: FailedFilter, *, quiet: bool) -> Iterator[Failure]:
    """Yield the failed jobs that match, with a bar while they are read."""
    from fusion.jobs.failures import scan

    with progress("reading failed jobs", inspector.failed_count(), quiet=quiet) as advance:
        for seen, found in scan(inspector, wanted, _LOOK):
            yield from found
            advance(seen)


# -- failures


@command(
    example="run_worker.py failures\n  run_worker.py failures 3f1d9c2ab86e\n"
    "  run_worker.py failures --newer-than 1h --json | jq .groups"
)
@click.argument("group", required=False, metavar="[GROUP]")
@filter_options
@click.option(
    "--limit", type=click.IntRange(1, 1000), help="That many groups, or newest jobs of one, at most. Default: all, or 10 jobs."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@utc_option
@shared_options
@watchable
def failures(cli: Cli, group: str | None, limit: int | None, as_json: bool, **given: Any) -> None:
    """Show failures, grouped by error and place.

    Failed jobs are grouped by the class of their error and by where it was raised: the last function in your own code. Quarantined ones are
    counted too. 1H and 24H: how many failed in that time, including those that were put back since. MESSAGE is the example's error message, with
    digits, secrets and the ends of URLs masked. With GROUP, one group: how often it fails, its newest jobs, what to do. Redis keeps the groups
    up to date; with options that select jobs, all failed jobs are read, and different lines are different groups. Callbacks (on_success,
    on_failure) that raised an error do not fail their job; they are counted below, with the last job.
    """
    if group is not None:
        if any(value is not None for value in given.values()):
            raise click.UsageError("GROUP can't be combined with --queue, --function, --error, --older-than or --newer-than")
        _show(cli, group, 10 if limit is None else limit, as_json)
        return
    kept = None if any(value is not None for value in given.values()) else _kept(cli, 1000 if limit is None else limit)
    if kept is not None:
        documents, lines, left, total = kept
    else:
        from fusion.jobs.failures import group as grouped

        every = grouped(found_failures(cli.onlooker, chosen(include_quarantined=True, **given), quiet=as_json))
        shown, total = every[:limit], sum(one.count for one in every)
        from fusion.cli.failures_render import rows_of_jobs
        from fusion.views.base import to_json
        from fusion.views.failure import CountedFailuresView

        groups = [CountedFailuresView.counted(one) for one in shown]
        documents, lines, left = [to_json(one) for one in groups], rows_of_jobs(groups, now()), len(every) - len(shown)
    if not documents and given["queue"] is not None:
        tell_unknown(cli, [given["queue"]])
    held = [one for one in cli.inspector.blocked() if one.kind == "held"]
    if as_json:
        from fusion.views.base import to_json
        from fusion.views.fleet import BlockedView, CallbackErrorsView

        waiting = [to_json(BlockedView.of(one)) for one in held]
        found = {"failed": total, "groups": documents, "held": waiting}
        echo(
            json.dumps(
                {"schema": SCHEMA, **found, "callback_errors": to_json(CallbackErrorsView.of(cli.onlooker.callback_errors()))}
            )
        )
    elif not documents:
        cli.tell_broken()
        echo("No failed jobs")
    else:
        echo("\n".join(lines))
        if left:
            echo(f"and {left} more groups; --limit N shows more")
        if kept is not None:
            echo(f"\nTo see the jobs of a group, and when they failed: {prog()} failures {documents[0]['id']}")
        echo(f"\nTo put some back: {prog()} requeue --all --error CLASS")
    if not as_json and (errors := cli.onlooker.callback_errors()):
        echo("\n" + bounds.raised(errors, now()))
    if held and not as_json:
        from fusion.store.read.blocked import in_words

        echo("\nNot failed yet:\n" + "\n".join(line for one in held for line in folded(in_words(one), 2)))


def _kept(cli: Cli, limit: int) -> tuple[list[dict[str, Any]], list[str], int, int] | None:
    """Return the groups that Redis keeps, those with the most jobs first: as JSON, as lines for people, how many are left out, and how many jobs
    have failed. None if the jobs themselves must be read: some failed in a version without groups, or a key is broken."""
    from fusion.cli.failures_render import rows_of
    from fusion.store.access import failure_inspector_of
    from fusion.views.base import to_json
    from fusion.views.failure import FailureGroupView

    inspector = failure_inspector_of(cli.looking)
    if not inspector.grouped():
        return None
    found, count, jobs = inspector.largest(0, limit)
    if not found:
        return None
    at = inspector.now()
    return [to_json(FailureGroupView.of(one, at)) for one in found], rows_of(found, at), count - len(found), jobs


def _show(cli: Cli, group: str, limit: int, as_json: bool) -> None:
    """Print one group."""
    from fusion.cli.failures_render import page_of
    from fusion.store.access import failure_inspector_of

    inspector = failure_inspector_of(cli.looking)
    found = inspector.group(group)
    if found is None:
        raise click.ClickException(f"there is no failure group {group}; to see all: {prog()} failures")
    at, jobs = inspector.now(), inspector.jobs(group, 0, limit)
    if as_json:
        from fusion.views.failure import FailureView

        echo_json(FailureView.whole(found, at, jobs))
    else:
        echo("\n".join(page_of(found, jobs, at)))


# -- quarantine


@command(
    example='run_worker.py quarantine otp-4711 --reason "number is blocked"\n'
    '  run_worker.py quarantine --function tasks.sms.sendSMS --error KeyError --reason "bug 815"'
)
@click.argument("job_ids", nargs=-1, metavar="[JOB_IDS]...")
@filter_options
@click.option("--reason", required=True, help="Why: shown with the jobs.")
@bulk.query_options
@click.option("--dry-run", is_flag=True, help="With --query: only show how many, and which.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document with the counts.")
@shared_options
@recorded("quarantine", jobs="job_ids", says=("query", "queue", "function", "error", "older_than", "newer_than", "reason"))
def quarantine(
    cli: Cli,
    job_ids: tuple[str, ...],
    reason: str,
    query: str | None,
    yes: bool,
    detach: bool,
    dry_run: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Quarantine failed jobs.

    They stay failed, but `requeue --all` leaves them out. Name jobs, or select them by at least one option. `requeue JOB_ID` ends it. Exit
    code 1 if one could not be quarantined.
    """
    narrow = any(value is not None for value in given.values())
    if not reason.strip():
        raise click.UsageError("--reason must not be empty")
    if bulk.check(query, job_ids, narrow, yes=yes, detach=detach):
        bulk.operate(cli, "quarantine", query or "", dry_run=dry_run, yes=yes, detach=detach, as_json=as_json, reason=reason)
        return
    if dry_run:
        raise click.UsageError("--dry-run goes with --query")
    wanted = chosen(**given)
    if bool(job_ids) == narrow:
        raise click.UsageError(
            "give job ids, or select jobs: --query, or --queue --function --error --older-than --newer-than; not both"
        )
    from fusion.failed_queue import FailedQueue

    total = len(job_ids) or cli.inspector.failed_count()
    with progress("quarantining", total, quiet=as_json) as advance:
        moved, refused = FailedQueue(cli.connection).quarantine(job_ids or wanted, reason, progress=advance)
    cli.changed(moved)
    if not moved and given["queue"] is not None:
        tell_unknown(cli, [given["queue"]])
    if as_json:
        echo(json.dumps({"schema": SCHEMA, "quarantined": moved, "refused": refused}))
    else:
        echo(f"{moved} jobs quarantined")
    for job_id, why in refused.items():
        told = {"missing": "no such job", FOREIGN: why_not(FOREIGN)}.get(why) or (
            why if why.startswith("error: ") else f"it is {why}, not failed"
        )
        echo(f"Unable to quarantine {job_id}: {told}", err=True)
    if refused:
        sys.exit(1)
