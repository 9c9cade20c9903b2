"""`stats`: outcomes and times of the jobs of a queue, a concurrency key or a function."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from fusion.cli import names
from fusion.cli.context import Cli, prog, shared_options
from fusion.cli.hints import command
from fusion.cli.output import echo
from fusion.cli.times import utc_option
from fusion.cli.watch import watchable
from fusion.kernel.timeutil import parse_seconds

if TYPE_CHECKING:
    from fusion.views.limit import KeyStatsView
    from fusion.views.queue import FunctionStatsView, QueueStatsView

_EXAMPLE = (
    "run_worker.py stats\n  run_worker.py stats sms --since 6h --watch\n  run_worker.py stats --function tasks.sms.sendSMS --json"
)


@command(example=_EXAMPLE)
@click.argument("queue", required=False)
@click.option("--key", metavar="KEY", help="Of a concurrency key.")
@click.option("--function", metavar="NAME", help="Of a task, by its dotted path.")
@click.option("--since", default="1h", show_default=True, metavar="TIME", help="How far back the history goes: up to 30d.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@utc_option
@shared_options
@watchable
def stats(cli: Cli, queue: str | None, key: str | None, function: str | None, since: str, as_json: bool) -> None:
    """Show the outcomes of jobs, and how long they waited and ran.

    Counters are exact and count from the start. The history of up to a day is by minute, a longer one by hour. Workers write it every few seconds;
    a killed worker loses its last seconds. p50, p95 and p99 are of jobs that ended, by priority. A function also has its slowest run and
    peak memory. Without a name all queues are listed.
    """
    if sum(one is not None for one in (queue, key, function)) > 1:
        raise click.UsageError("QUEUE, --key and --function exclude each other")
    try:
        span = parse_seconds(since)
    except ValueError as error:
        raise click.UsageError(f"--since: {error}") from None
    if not 60 <= span <= 30 * 86400:
        raise click.UsageError("--since: use a time from 1m to 30d")
    if queue is not None:
        names.check(queue)

    found = gather(cli, queue, key, function, span, whole=not as_json)
    from fusion.views.base import to_json

    document = {"queues": to_json(found)} if isinstance(found, list) else to_json(found)
    if as_json:
        echo(json.dumps({"schema": 1, **document}))
        return
    from fusion.cli import stats_render

    echo(stats_render.listing(found) if isinstance(found, list) else stats_render.text(document))


def gather(
    cli: Cli, queue: str | None, key: str | None, function: str | None, since: float, *, whole: bool = False
) -> QueueStatsView | KeyStatsView | FunctionStatsView | list[QueueStatsView]:
    """Read all data. `whole`: with steps without activity. A usage error for an unknown name."""
    from fusion.views.queue import FunctionStatsView, QueueStatsView

    inspector = cli.onlooker
    if key is not None:
        return _key(cli, key)
    if function is not None:
        if function not in (known := inspector.history_names("function")):
            raise click.UsageError(f"nothing was seen of {function!r}; {_some(known, 'functions')}")
        return FunctionStatsView.of(function, *inspector.function_history(function, since), whole=whole)
    existing = inspector.queue_names()
    if queue is None:
        return [QueueStatsView.of_stats(inspector.stats(name)) for name in existing]
    if queue not in existing:
        raise click.UsageError(f"no job was ever enqueued to {queue!r}; `{prog()} info` shows all queues")
    steps = inspector.history("queue", queue, since)
    return QueueStatsView.of_stats(inspector.stats(queue), steps, whole=whole)


def _key(cli: Cli, key: str) -> KeyStatsView:
    from fusion.store.access import limit_inspector_of
    from fusion.views.limit import KeyStatsView

    found = limit_inspector_of(cli.looking).stats(key)
    if found is None:
        raise click.UsageError(
            f"no job has the concurrency key {key!r}, and nothing is set for it; `{prog()} limit list` lists all keys"
        )
    return KeyStatsView.of_stats(found)


def _some(known: list[str], what: str) -> str:
    return f"known {what}: {', '.join(known[:10])}" if known else f"no {what} are known yet"
