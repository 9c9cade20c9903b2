"""`suspend` and `resume`: all workers at once. `pause` and `unpause`: queues. `quiet` and `unquiet`: single workers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

import click

from fusion.cli.context import Cli, shared_options
from fusion.cli.hints import command
from fusion.cli.output import echo
from fusion.cli.recorded import recorded
from fusion.kernel.timeutil import FURTHEST

_Function = Callable[..., Any]


@command(example="run_worker.py suspend --duration 600")
@click.option(
    "--duration",
    type=click.IntRange(max=int(FURTHEST)),
    metavar="SECONDS",
    help="Resume by itself after this time.  [default: never]",
)
@shared_options
@recorded("suspend", says=("duration",))
def suspend(cli: Cli, duration: int | None) -> None:
    """Suspend all workers: none starts another job.

    Running jobs are completed, and jobs can still be enqueued. `resume` lets the workers go on.
    """
    if duration is not None and duration < 1:
        echo("Duration must be an integer greater than 1", err=True)
        sys.exit(1)
    cli.broker.suspend(duration)
    if duration:
        echo(
            f"Suspending workers for {duration} seconds. No new jobs will be started during that time,"
            " but then will automatically resume"
        )
    else:
        echo("Suspending workers.  No new jobs will be started.  But current jobs will be completed")


@command(example="run_worker.py resume")
@shared_options
@recorded("resume")
def resume(cli: Cli) -> None:
    """Resume suspended workers."""
    cli.broker.resume()
    echo("Resuming workers.")


def unknown(cli: Cli, queues: Sequence[str]) -> list[str]:
    """Return a sentence for each unknown queue or wildcard."""
    known = {*cli.inspector.queue_names(), *cli.settings.queues}
    if set(queues) <= known:
        return []
    known |= {name for worker in cli.inspector.workers() for name in worker.queues}
    found = []
    for queue in queues:
        if queue not in known and not any(fnmatchcase(name, queue) for name in known):
            near = get_close_matches(queue, known, n=1)
            found.append(f"no queue {queue} is known" + (f"; did you mean {near[0]}?" if near else ""))
    return found


def refuse_unknown(cli: Cli, queues: Sequence[str], anyway: str = "") -> None:
    """If there are unknown queues, print a line for each and end with exit code 1."""
    sentences = unknown(cli, queues)
    for sentence in sentences:
        echo(f"Error: {sentence}" + f"; {anyway}" * bool(anyway), err=True)
    if sentences:
        sys.exit(1)


def tell_unknown(cli: Cli, queues: Sequence[str]) -> None:
    """Print hints about unknown queues on stderr when nothing was found: the name may be mistyped."""
    for sentence in unknown(cli, queues):
        echo(sentence, err=True)


def _duration(ctx: click.Context, param: click.Parameter, given: str | None) -> float | None:
    from fusion.enqueue.kinds import seconds
    from fusion.exceptions import OptionError

    try:
        return None if given is None else seconds("--duration", given)
    except OptionError as error:
        raise click.BadParameter(error.rule) from None


def _line(ctx: click.Context, param: click.Parameter, given: str) -> str:
    from fusion.enqueue.kinds import one_line
    from fusion.exceptions import OptionError

    try:
        return one_line("--reason", given)
    except OptionError as error:
        raise click.BadParameter(error.rule) from None


def duration_option(meaning: str) -> Callable[[_Function], _Function]:
    """Add --duration: seconds, or a text like 10m."""
    return click.option("--duration", callback=_duration, metavar="SECONDS", help=meaning)


def line_option(name: str, meaning: str) -> Callable[[_Function], _Function]:
    """Add an option whose value is a text of one line; empty if it is not given."""
    return click.option(name, callback=_line, default="", metavar="TEXT", help=meaning)


@command(example='run_worker.py pause email\n  run_worker.py pause sms email --duration 10m --reason "the provider is down"')
@click.argument("queues", nargs=-1, required=True, metavar="QUEUE...")
@duration_option("Unpause by itself after this time.  [default: never]")
@line_option("--reason", "The reason; it is shown with the queue and the name of who paused it.")
@click.option("-y", "--yes", is_flag=True, help="Also pause queues that were never used.")
@shared_options
@recorded("pause", queues="queues", says=("duration", "reason"))
def pause(cli: Cli, queues: tuple[str, ...], duration: float | None, reason: str, yes: bool) -> None:
    """Pause queues: none of their jobs is started.

    Running jobs are completed, and jobs can still be enqueued. Other queues go on. Exit code 1, and none is paused, if one is unknown: no job
    was ever enqueued to it, no worker serves it by its name, and the settings don't name it.
    """
    from fusion.store.layout.names import check_queue_name
    from fusion.store.layout.pauses import this_user

    wanted = [check_queue_name(name) for name in queues]
    if not yes:
        refuse_unknown(cli, wanted, "--yes pauses it anyway")
    for queue in wanted:
        cli.broker.pause(queue, duration, by=this_user(), reason=reason)
        echo(f"{queue} is paused" + (f" for {duration:g} seconds" if duration else ""))


@command(example="run_worker.py unpause email")
@click.argument("queues", nargs=-1, required=True, metavar="QUEUE...")
@shared_options
@recorded("unpause", queues="queues")
def unpause(cli: Cli, queues: tuple[str, ...]) -> None:
    """Unpause queues."""
    from fusion.cli.bounds import was_paused
    from fusion.kernel.timeutil import now
    from fusion.store.layout.names import check_queue_name

    stayed = []
    for queue in [check_queue_name(name) for name in queues]:
        if pause := cli.broker.unpause(queue):
            echo(f"{queue} goes on{was_paused(pause, now())}")
        else:
            echo(f"{queue} was not paused")
            stayed.append(queue)
    if stayed:
        refuse_unknown(cli, stayed)


@command(example="run_worker.py quiet web1.4711\n  run_worker.py quiet --all")
@click.argument("workers", nargs=-1, metavar="[WORKER]...")
@click.option("--all", "everyone", is_flag=True, help="Every worker that is alive.")
@shared_options
@recorded("quiet", of="workers", says=("everyone",))
def quiet(cli: Cli, workers: tuple[str, ...], everyone: bool) -> None:
    """Quiet workers: they finish their running jobs and take no more.

    They stay alive, and their queues stay open to others; `unquiet` lets them go on. SIGTSTP to a worker does the same.
    """
    from fusion.runtime.commands import QUIET

    _command(cli, QUIET, workers, everyone)


@command(example="run_worker.py unquiet web1.4711\n  run_worker.py unquiet --all")
@click.argument("workers", nargs=-1, metavar="[WORKER]...")
@click.option("--all", "everyone", is_flag=True, help="Every worker that is alive.")
@shared_options
@recorded("unquiet", of="workers", says=("everyone",))
def unquiet(cli: Cli, workers: tuple[str, ...], everyone: bool) -> None:
    """Unquiet workers: they take jobs again.

    SIGCONT to a worker does the same.
    """
    from fusion.runtime.commands import UNQUIET

    _command(cli, UNQUIET, workers, everyone)


def _command(cli: Cli, name: str, workers: tuple[str, ...], everyone: bool) -> None:
    if bool(workers) == everyone:
        raise click.UsageError("name workers (`info -W` lists them), or give --all")
    alive = [worker.name for worker in cli.inspector.workers() if worker.alive and not worker.is_courier]
    payload = json.dumps({"command": name})
    deaf = [worker for worker in (workers or alive) if not cli.broker.command(worker, payload)]
    told = len(workers or alive) - len(deaf)
    cli.changed(told)
    echo(f"{name}: {told} worker(s) told")
    for worker in deaf:
        why = (
            "it can't receive commands just now, try again"
            if worker in alive
            else f"no such worker; there are {', '.join(alive) or 'none'}"
        )
        echo(f"{worker}: {why}", err=True)
    if deaf:
        sys.exit(1)
