"""`info`: queues, workers and schedulers at a glance, once or live. Its cost does not grow with the number of jobs."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from fusion.cli import names, render
from fusion.cli.arguments import FiniteRange
from fusion.cli.context import Cli, explain, prog, shared_options
from fusion.cli.hints import command
from fusion.cli.output import drawn, echo, shown, styled
from fusion.kernel.timeutil import now, to_iso

if TYPE_CHECKING:
    from fusion.store.read.cron_inspector import SchedulerInfo
    from fusion.store.read.limit_inspector import LimitInfo

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"  # the alternate screen, no cursor, long lines cut instead of wrapped
_LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME, _END_LINE, _END_SCREEN = "\x1b[H", "\x1b[K\n", "\x1b[J"


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

    QUEUES may be wildcards ('sms*'); without any, all known queues are shown. Columns: jobs waiting by priority, how long the
    oldest has waited, jobs that are running, finished ones that are still kept, and those that wait for others. Schedulers are shown
    unless -W or -Q is given.
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
        live(frame, interval)
    else:
        repeat(frame, interval)


def gather(
    cli: Cli, chosen: list[str], *, with_queues: bool, with_workers: bool, with_schedulers: bool = False
) -> render.Snapshot:
    """Read it all: a handful of round trips."""
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
    return render.Snapshot(now(), totals, listed, queues, workers, bool(chosen), unseen, schedulers, cron, broken, blocked, stuck)


def _stuck(cli: Cli, any_blocked: bool) -> tuple[LimitInfo, ...]:
    """Concurrency keys that get no further; nobody is asked if no job is blocked."""
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


def repeat(frame: Callable[[], str], interval: float) -> None:
    """Print each frame below the last one, every `interval` seconds, until Ctrl-C."""
    try:
        while True:
            echo(frame() + "\n")
            time.sleep(interval)
    except KeyboardInterrupt:
        pass


def live(frame: Callable[[], str], interval: float) -> None:
    """Each frame overwrites the last one in place, so that nothing flickers. While Redis is away the last figures stay."""
    text = frame()
    with _alternate_screen():
        trouble = ""
        while True:
            status = trouble or f"Updated {to_iso(now())}, every {interval:g} s; Ctrl-C ends"
            click.echo(drawn(screen(text, status, shutil.get_terminal_size().lines)), nl=False)
            time.sleep(interval)
            try:
                text, trouble = frame(), ""
            except Exception as error:
                line = explain(error)
                if line is None:
                    raise
                trouble = styled(shown(line), fg="red")


def screen(text: str, status: str, height: int) -> str:
    """The bytes that draw `text` and a last line; what does not fit gives way to a count, the summary stays."""
    lines = text.split("\n")
    room = max(height - 2, 2)
    if len(lines) > room:
        lines = [*lines[: room - 2], f"... {len(lines) - room + 1} more lines", lines[-1]]
    return _HOME + _END_LINE.join([*lines, ""]) + _END_LINE + status + "\x1b[K" + _END_SCREEN


@contextmanager
def _alternate_screen() -> Iterator[None]:
    """Gives the terminal back as it was, also when asked to terminate."""

    def end(number: int, stack: Any) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    click.echo(_ENTER, nl=False)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        click.echo(_LEAVE, nl=False)
        signal.signal(signal.SIGTERM, before)
