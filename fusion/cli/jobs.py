"""`requeue` puts failed jobs back into their queues; `empty` deletes waiting jobs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from fusion.cli import bulk, names
from fusion.cli.context import Cli, confirmed, prog, shared_options
from fusion.cli.control import refuse_unknown, tell_unknown
from fusion.cli.failed import chosen, filter_options, found_failures
from fusion.cli.hints import command
from fusion.cli.output import echo
from fusion.cli.progress import progress
from fusion.cli.recorded import recorded
from fusion.exceptions import InvalidName
from fusion.status import FOREIGN, why_not

if TYPE_CHECKING:
    from fusion.jobs.failures import FailedFilter
    from fusion.trash import Thrown

SCHEMA = 1
#: Ids that are requeued in one call.
_CHUNK = 100
#: Seconds of emptying between two updates of the progress.
_STEP = 0.25


# -- requeue


@command(
    example="run_worker.py requeue --all\n  run_worker.py requeue --all --queue sms --error ConnectionError --newer-than 2h --dry-run\n"
    "  run_worker.py requeue otp-4711 otp-4712\n  run_worker.py requeue --query 'state:failed error:Timeout newer:1h'"
)
@click.argument("job_ids", nargs=-1, metavar="[JOB_IDS]...")
@click.option("-a", "--all", "everything", is_flag=True, help="All failed jobs, or those that match the options; never asks.")
@filter_options
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="That many at most, those that failed first.")
@click.option("--include-quarantined", is_flag=True, help="Also quarantined jobs.")
@bulk.query_options
@click.option("--dry-run", is_flag=True, help="Only show how many; with --query also which.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document with the counts.")
@shared_options
@recorded(
    "requeue",
    jobs="job_ids",
    says=("everything", "query", "queue", "function", "error", "older_than", "newer_than", "limit", "include_quarantined"),
)
def requeue(
    cli: Cli,
    job_ids: tuple[str, ...],
    everything: bool,
    queue: str | None,
    limit: int | None,
    include_quarantined: bool,
    query: str | None,
    yes: bool,
    detach: bool,
    dry_run: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Put failed jobs back to the queues they came from.

    Each goes to its original queue at its old priority, behind those that wait there. Quarantined jobs need their ids or --include-quarantined.
    After Ctrl-C each job is either moved or untouched; the same call goes on. Exit code 1 if one could not be put back.
    """
    narrow = any(value is not None for value in given.values())
    if bulk.check(query, job_ids, everything, queue, narrow, limit, include_quarantined, detach=detach):
        bulk.operate(cli, "requeue", query or "", dry_run=dry_run, yes=yes, detach=detach, as_json=as_json)
        return
    if everything and job_ids:
        raise click.UsageError("give job ids or --all, not both")
    if not everything and (narrow or limit or include_quarantined or dry_run):
        raise click.UsageError("of the options that select jobs, only --queue can be used without --all")
    wanted = chosen(queue=queue, include_quarantined=include_quarantined, **given)
    ids = list(dict.fromkeys(job_ids))
    # Read for single ids too, so that nothing is printed before Redis has answered.
    failed = cli.inspector.failed_count() if everything or ids else 0
    total = failed if everything else len(ids)
    fit, aside = _counted(cli, wanted, as_json) if everything and failed else (total, 0)
    if everything and queue and not (failed and fit + aside):
        tell_unknown(cli, [queue])
    if total and not as_json:
        whose = f"the jobs of {queue}" if everything and queue else "jobs" if narrow or limit else f"{fit} jobs"
        echo(f"Requeueing {whose} from failed queue" + " (dry run: nothing is moved)" * dry_run)
    with progress("requeueing", total, quiet=as_json) as advance:
        if everything:
            moved, refused = _requeue_all(cli, wanted, limit, dry_run, advance)
        else:
            moved, refused = _requeue_ids(cli, ids, queue, advance)
    cli.changed(moved)
    if as_json:
        dry = {"dry_run": True} if dry_run else {}
        echo(
            json.dumps(
                {"schema": SCHEMA, "requeued": moved, "refused": refused, **({"quarantined": aside} if everything else {}), **dry}
            )
        )
    elif not total:
        echo("Nothing to do")
        if not (everything or ids):
            echo("Give ids of failed jobs, or --all for all of them", err=True)
    else:
        left = f"; {aside} quarantined are left out (--include-quarantined)" if aside else ""
        echo(f"{moved} jobs {'would be ' * dry_run}requeued{left}")
    for job_id, why in refused.items():
        echo(f"Unable to requeue {job_id}: {why}", err=True)
    if refused:
        sys.exit(1)


def _counted(cli: Cli, wanted: FailedFilter, as_json: bool) -> tuple[int, int]:
    """Return the number of selected failed jobs, and of those that are left out only because they are quarantined."""
    every = found_failures(cli.inspector, replace(wanted, include_quarantined=True), quiet=as_json)
    found = [bool(one.quarantined) for one in every]
    aside = 0 if wanted.include_quarantined else sum(found)
    return len(found) - aside, aside


def _requeue_all(
    cli: Cli, wanted: FailedFilter, limit: int | None, dry_run: bool, advance: Callable[[int], None]
) -> tuple[int, dict[str, str]]:
    from fusion.failed_queue import FailedQueue

    moved, refused = FailedQueue(cli.connection).requeue_all(wanted, limit=limit, dry_run=dry_run, progress=advance)
    # A status means that the job was already put back meanwhile, which is the wanted result.
    told = {job_id: _why(answer) for job_id, answer in refused.items()}
    return moved, {job_id: why for job_id, why in told.items() if why}


_WHY = {"missing": "no such job", "corrupt": "it has no data to run", FOREIGN: why_not(FOREIGN)}


def _why(answer: str) -> str | None:
    """Return why a job was not requeued; None if the answer is a status."""
    if answer.startswith("cycle "):
        return f"it would wait for itself: {answer.removeprefix('cycle ')}"
    return answer.removeprefix("error: ") if answer.startswith("error: ") else _WHY.get(answer)


def _requeue_ids(cli: Cli, ids: list[str], queue: str | None, advance: Callable[[int], None]) -> tuple[int, dict[str, str]]:
    from fusion.kernel.nonces import new_nonce

    moved = 0
    refused: dict[str, str] = {}
    for start in range(0, len(ids), _CHUNK):
        chunk = ids[start : start + _CHUNK]
        fit = _fitting(cli, chunk, queue, refused)
        answers = cli.broker.requeue(fit, new_nonce()) if fit else []
        for job_id, answer in zip(fit, answers, strict=True):
            if answer == "ok":
                moved += 1
            else:
                refused[job_id] = _why(answer) or f"it is {answer}, not failed"
        advance(len(chunk))
    return moved, refused


def _fitting(cli: Cli, ids: list[str], queue: str | None, refused: dict[str, str]) -> list[str]:
    """Return the valid ids whose jobs came from the given queue, if any. The reasons against the others go to `refused`."""
    from fusion.job import Job
    from fusion.store.layout.names import check_job_id

    fit = []
    for job_id in ids:
        try:
            fit.append(check_job_id(job_id))
        except InvalidName as error:
            refused[job_id] = f"no such job; {error}"
    if queue is None or not fit:
        return fit
    origins = {job.id: job.original_queue for job in Job.fetch_many(fit, cli.connection) if job}
    for job_id in fit:
        if (origin := origins.get(job_id, queue)) != queue:
            refused[job_id] = f"it came from {origin}, not {queue}"
    return [job_id for job_id in fit if job_id not in refused]


# -- empty


@command(example="run_worker.py empty sms email\n  run_worker.py empty --all --dry-run\n  run_worker.py empty --all --yes")
@click.argument("queues", nargs=-1, metavar="[QUEUES]...")
@click.option("-a", "--all", "everything", is_flag=True, help="All queues.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask; without a terminal only --purge needs it.")
@click.option("--purge", is_flag=True, help="For good, not into the trash.")
@click.option("--dry-run", is_flag=True, help="Only show how many.")
@shared_options
@recorded("empty", queues="queues", says=("everything", "purge"))
def empty(cli: Cli, queues: tuple[str, ...], everything: bool, yes: bool, purge: bool, dry_run: bool) -> None:
    """Delete all waiting jobs of these queues.

    Jobs that run, have failed or are scheduled stay. For an hour `trash restore` brings deleted jobs back. On a terminal it asks first; a script
    is not asked, as with RQ, but needs --yes with --purge. Exit code 1, and nothing is removed, if a queue is unknown; with --yes that is only
    a warning.
    """
    if everything and queues:
        raise click.UsageError("give queues or --all, not both")
    chosen = cli.inspector.queue_names() if everything else [names.check(name) for name in names.split(queues)]
    if not chosen:
        echo("Nothing to do")
        if not everything:
            echo("Give names of queues, or --all for all of them", err=True)
        return
    if yes or everything:
        tell_unknown(cli, chosen)
    else:
        refuse_unknown(cli, chosen)
    waiting: dict[str, int] = {}
    if not yes or dry_run:
        waiting = {info.name: info.count for info in cli.inspector.queues(chosen)}
        if dry_run:
            for name, count in waiting.items():
                echo(f"{count} jobs would be removed from {name} queue")
            return
        question = f"Forget {sum(waiting.values())} waiting jobs of {', '.join(chosen)}?"
        if any(waiting.values()) and not confirmed(question, yes, undone=not purge):
            echo("Nothing was removed", err=True)
            sys.exit(1)
    from fusion.trash import Thrown, Trash

    told = Thrown(0, 0)
    for name in chosen:
        deleted, more = 0, True
        with progress(f"emptying {name}", waiting.get(name)) as advance:
            while more:
                thrown = Trash(cli.connection).empty_queue(name, purge=purge, seconds=_STEP)
                told = Thrown(told.deleted + thrown.deleted, told.kept + thrown.kept)
                deleted, more = deleted + thrown.deleted, thrown.more
                cli.changed(thrown.deleted)
                advance(thrown.deleted)
        echo(f"{deleted} jobs removed from {name} queue")
    if told.deleted and not purge:
        tell_kept(told, f"--query queue:{','.join(chosen)}" if not everything else "--all")


def tell_kept(thrown: Thrown, which: str) -> None:
    """Print on stderr how to restore the deleted jobs, and how many can't be restored."""
    if thrown.kept:
        echo(f"{thrown.kept} jobs deleted; to get them back within an hour: {prog()} trash restore {which}", err=True)
    if lost := thrown.deleted - thrown.kept:
        echo(f"{lost} jobs are gone for good: the trash is full, or Redis is over 80 % of its maxmemory", err=True)
