"""`info`: an overview of queues, workers and schedulers, once or live. Its cost does not grow with the number of jobs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from fusion.cli import names, render, screen
from fusion.cli.arguments import FiniteRange
from fusion.cli.context import Cli, prog, shared_options
from fusion.cli.hints import command
from fusion.cli.output import echo
from fusion.kernel.timeutil import now

if TYPE_CHECKING:
    from fusion.doctor.verdict import Verdict
    from fusion.jobs.moment import RunningJob
    from fusion.store.read.callback_inspector import CallbackCounts
    from fusion.store.read.cron_inspector import SchedulerInfo
    from fusion.store.read.event_inspector import SinkInfo
    from fusion.store.read.inspector import WorkerInfo
    from fusion.store.read.limit_inspector import LimitInfo


@command(example="run_worker.py info\n  run_worker.py info 'sms*' -i 1\n  run_worker.py info --json | jq .queues")
@click.argument("queues", nargs=-1, metavar="[QUEUES]...")
@click.option("-W", "--only-workers", is_flag=True, help="Only the workers.")
@click.option("-Q", "--only-queues", is_flag=True, help="Only the queues.")
@click.option("-R", "--by-queue", is_flag=True, help="List workers by queue.")
@click.option("-r", "--raw", is_flag=True, help="RQ's raw lines; failed jobs are on a line of their own, `queue failed`.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option(
    "-i", "--interval", type=FiniteRange(0.05, 24 * 3600), metavar="SECONDS", help="Show it again and again; Ctrl-C ends."
)
@shared_options
def info(
    cli: Cli,
    queues: tuple[str, ...],
    only_workers: bool,
    only_queues: bool,
    by_queue: bool,
    raw: bool,
    as_json: bool,
    interval: float | None,
) -> None:
    """Show queues and workers.

    QUEUES may be wildcards ('sms*'); without any, all known queues are shown. Columns: jobs waiting by priority, how long the oldest has
    waited, jobs that are running, finished ones that are still kept, and those that wait for others; jobs per minute that failed, came in and
    went out, in the last minute that a live worker measured. Red and yellow need a person. Schedulers are shown unless -W or -Q is given.
    """
    chosen = [names.check(name, patterns=True) for name in names.split(queues)]
    if only_workers and only_queues:
        raise click.UsageError("--only-workers and --only-queues exclude each other")
    if as_json and (raw or interval):
        raise click.UsageError("--json goes with neither --raw nor --interval")

    def frame() -> str:
        all_parts = not (only_workers or only_queues or raw)
        snapshot = gather(cli, chosen, with_queues=not only_workers, with_workers=not only_queues, with_schedulers=all_parts)
        if as_json:
            return json.dumps(render.document(snapshot))
        if raw:
            return render.raw(snapshot, by_queue=by_queue)
        return render.text(snapshot, by_queue=by_queue, program=prog())

    if interval is None:
        echo(frame())
    elif sys.stdout.isatty() and not raw:
        screen.live(frame, interval)
    else:
        screen.repeat(frame, interval)


def gather(
    cli: Cli, chosen: list[str], *, with_queues: bool, with_workers: bool, with_schedulers: bool = False
) -> render.Snapshot:
    """Read all data of `info`, in a few round trips."""
    inspector = cli.onlooker
    existing = inspector.queue_names()
    listed = names.known(chosen, existing)
    queues = tuple(inspector.queues(listed)) if with_queues else None
    workers = tuple(inspector.workers()) if with_workers else None
    if chosen and workers is not None:
        workers = tuple(worker for worker in workers if any(render.serves(worker, name) for name in listed))
    unseen = tuple(name for name in listed if name not in existing)
    schedulers, cron = _cron(cli) if with_schedulers else (None, None)
    blocked = tuple(one for one in inspector.blocked() if one.queue in listed) if with_queues else ()
    totals = inspector.totals()
    broken = tuple(cli.broken())
    stuck = _stuck(cli, any(queue.blocked for queue in queues or ()))
    told = _verdict(cli) if with_queues and with_workers and with_schedulers and not chosen else None
    more = _more(cli, workers or (), with_sinks=with_schedulers)
    return render.Snapshot(
        now(), totals, listed, queues, workers, bool(chosen), unseen, schedulers, cron, broken, blocked, stuck, told, *more
    )


def _verdict(cli: Cli) -> Verdict:
    from fusion.doctor.look import Look
    from fusion.doctor.verdict import verdict

    return verdict(Look(cli.connection, cli.settings, prog()))


def _more(
    cli: Cli, workers: Sequence[WorkerInfo], *, with_sinks: bool
) -> tuple[tuple[SinkInfo, ...] | None, CallbackCounts | None, tuple[RunningJob, ...]]:
    """Read the state of sinks and callbacks, and the jobs of workers that run several."""
    from fusion.jobs.moment import running_jobs
    from fusion.store.access import event_inspector_of
    from fusion.store.read.callback_inspector import CallbackInspector

    several = [worker for worker in workers if len(worker.jobs) > 1]
    running = tuple(running_jobs(cli.onlooker, several, 200)) if several else ()
    if not with_sinks:
        return None, None, running
    sinks = tuple(event_inspector_of(cli.looking).sinks())
    return sinks, CallbackInspector(cli.looking, prefix=cli.settings.prefix).counts(), running


def _stuck(cli: Cli, any_blocked: bool) -> tuple[LimitInfo, ...]:
    """Return the stuck concurrency keys. Nothing is read if no job is blocked."""
    if not any_blocked:
        return ()
    from fusion.store.access import limit_inspector_of

    return tuple(limit_inspector_of(cli.looking).stuck_limits())


def _cron(cli: Cli) -> tuple[tuple[SchedulerInfo, ...], render.CronTotals]:
    from fusion.store.access import cron_inspector_of

    inspector = cron_inspector_of(cli.looking)
    entries = inspector.entries()
    errors = sum(bool(entry.error or entry.declared_error) for entry in entries)
    paused = sum(entry.paused is not None for entry in entries)
    return tuple(inspector.schedulers()), render.CronTotals(len(entries), paused, errors)
