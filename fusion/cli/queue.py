"""`queue show | set`: limits of queues at run time."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from fusion.cli import names
from fusion.cli.context import Cli, prog, shared_options
from fusion.cli.control import refuse_unknown
from fusion.cli.hints import Command, Group
from fusion.cli.output import echo
from fusion.cli.recorded import recorded
from fusion.cli.watch import watchable
from fusion.exceptions import OptionError

if TYPE_CHECKING:
    from fusion.store.read.queue_inspector import QueueInfo

SCHEMA = 1
_Function = Callable[..., Any]
_TAKEN_BACK = {
    "limit": "As many at once as there are slots.",
    "rate": "As many in a time as can.",
    "max_wait": "No bound of its own.",
}
_TAKEN_BACK |= {"max_length": "As the settings of who enqueues say.", "timeout": "As the settings of who enqueues say."}

#: Options whose values are written to the audit.
_SAYS = ("limit", "rate", "burst", "max_wait", "max_length", "timeout", *(f"no_{bound}" for bound in _TAKEN_BACK))


@click.group(cls=Group, name="queue")
def queue_group() -> None:
    """Show and set limits of queues.

    A limit holds for the whole fleet from the next claim or enqueue on. It stays until the workers' setting queue_gates
    changes.
    """


def _no(name: str) -> Callable[[_Function], _Function]:
    return click.option(f"--no-{name.replace('_', '-')}", is_flag=True, help=f"Remove it. {_TAKEN_BACK[name]}")


@queue_group.command(
    "show", cls=Command, epilog="\b\nExample:\n  run_worker.py queue show\n  run_worker.py queue show sms --json"
)
@click.argument("queues", nargs=-1, metavar="[QUEUES]...")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@shared_options
@watchable
def show(cli: Cli, queues: tuple[str, ...], as_json: bool) -> None:
    """Show the limits that are set for queues.

    QUEUES may be wildcards; without any, all queues with limits are shown. A dash means that nothing is set.
    """
    from fusion.cli.tables import table

    inspector = cli.onlooker
    chosen = [names.check(name, patterns=True) for name in names.split(queues)]
    listed = names.known(chosen, inspector.queue_names()) if chosen else inspector.bounded()
    infos = inspector.queues(listed)
    if as_json:
        from fusion.views.base import to_json
        from fusion.views.queue import QueueView

        echo(json.dumps({"schema": SCHEMA, "queues": [to_json(QueueView.of(info)) for info in infos]}))
    elif infos:
        header = ("QUEUE", "LIMIT", "RATE", "BURST", "MAX WAIT", "MAX LENGTH", "TIMEOUT")
        echo("\n".join(table(header, [(info.name, *_cells(info)) for info in infos])))
    else:
        cli.tell_broken()
        echo(f"Nothing is set for any queue; to set something: {prog()} queue set QUEUE --limit N")


@queue_group.command(
    "set",
    cls=Command,
    epilog="\b\nExamples:\n  run_worker.py queue set sms --limit 20 --rate 100/60s --burst 5\n  run_worker.py queue set sms --no-rate --timeout 1h",
)
@click.argument("queue", metavar="QUEUE")
@click.option("--limit", type=int, metavar="N", help="The most of its jobs that run at once.")
@_no("limit")
@click.option("--rate", metavar="RATE", help="The most of its jobs that start in a time: 100/60s, 10/s, 5/2m.")
@click.option("--burst", type=int, metavar="N", help="With --rate: the most that may start at once after an idle time.")
@_no("rate")
@click.option("--max-wait", metavar="TIME", help="A job of lower priority that has waited longer is next.")
@_no("max_wait")
@click.option("--max-length", type=int, metavar="N", help="The most jobs that may wait; further enqueues are refused.")
@_no("max_length")
@click.option("--timeout", metavar="TIME", help="Jobs without a ttl expire when they have waited this long.")
@_no("timeout")
@click.option("-y", "--yes", is_flag=True, help="Also for a queue that was never used.")
@shared_options
@recorded("queue_set", queues="queue", says=_SAYS)
def set_bounds(cli: Cli, queue: str, yes: bool, burst: int | None, **given: Any) -> None:
    """Set limits of a queue, or remove them; limits that are not named stay.

    Running jobs go on, and waiting jobs stay. A new rate, and --no-rate, also end a hold by a task (`rate_limited`). Exit code 1, and nothing
    is set, if the queue is unknown.
    """
    from fusion.kernel import gates

    name, values = names.check(queue), dict[str, Any]()
    for bound in _TAKEN_BACK:
        value, no = given[bound], given[f"no_{bound}"]
        if value is not None and no:
            raise click.UsageError(f"--{bound.replace('_', '-')} and --no-{bound.replace('_', '-')} exclude each other")
        if value is None and not no:
            continue
        try:
            values |= gates.rate_gate(value, burst) if bound == "rate" else getattr(gates, f"{bound}_gate")(value)
        except (OptionError, ValueError) as error:
            raise click.UsageError(str(error)) from None
    if burst is not None and given["rate"] is None:
        raise click.UsageError("--burst goes with --rate")
    if not values:
        raise click.UsageError(
            "give a limit to set: --limit, --rate, --max-wait, --max-length, --timeout; or --no-limit ... to remove it"
        )
    if not yes:
        refuse_unknown(cli, [name], "--yes sets it anyway")
    cli.broker.set_gate(name, values)
    (info,) = cli.inspector.queues([name])
    words = [f"{title} {cell}" for title, cell in zip(_TITLES, _cells(info), strict=True) if cell != "-"]
    echo(f"{name}: {', '.join(words) or 'nothing is set'}")


_TITLES = ("limit", "rate", "burst", "max wait", "max length", "timeout")


def _cells(info: QueueInfo) -> tuple[str, ...]:
    bounds = info.bounds
    counts = (bounds.limit, bounds.rate, bounds.rate and bounds.rate.burst, bounds.max_length)
    limit, rate, burst, length = ("-" if value is None else str(value) for value in counts)
    wait, timeout = ("-" if value is None else f"{value:g} s" for value in (bounds.max_wait, bounds.timeout))
    return limit, rate, burst, wait, length, timeout
