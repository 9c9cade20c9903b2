"""`stats`: what became of jobs, and how long they waited and ran: of a queue, a concurrency key or a function."""

from __future__ import annotations

import json
from typing import Any

import click

from fusion.cli import names
from fusion.cli.context import Cli, prog, shared_options
from fusion.cli.hints import command
from fusion.cli.output import echo
from fusion.cli.times import utc_option
from fusion.cli.watch import watchable
from fusion.kernel.timeutil import parse_seconds, to_iso

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
    """Show what became of jobs, and how long they waited and ran.

    Counters are of all time, and exact. The history is of up to a day by minute, else by hour; workers write it down every few seconds,
    and what was not written when one is killed is not in it. p50, p95 and p99 are of jobs that ended, by priority. Without a name all
    queues are listed.
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

    found = gather(cli, queue, key, function, span)
    if as_json:
        echo(json.dumps({"schema": 1, **found}))
    else:
        from fusion.cli import stats_render

        echo(stats_render.text(found))


def gather(cli: Cli, queue: str | None, key: str | None, function: str | None, since: float) -> dict[str, Any]:
    """Everything to be shown, as JSON shows it. A usage error for what is not there."""
    inspector = cli.onlooker
    if key is not None:
        return _key(cli, key)
    if function is not None:
        if function not in (known := inspector.history_names("function")):
            raise click.UsageError(f"nothing was seen of {function!r}; {_some(known, 'functions')}")
        return {"function": function, **_history(inspector.history("function", function, since))}
    existing = inspector.queue_names()
    if queue is None:
        return {"queues": [_queue(inspector, name) for name in existing]}
    if queue not in existing:
        raise click.UsageError(f"no job was ever enqueued to {queue!r}; `{prog()} info` shows the queues that there are")
    return {**_queue(inspector, queue), **_history(inspector.history("queue", queue, since))}


def _key(cli: Cli, key: str) -> dict[str, Any]:
    from fusion.store.access import limit_inspector_of

    found = limit_inspector_of(cli.looking).stats(key)
    if found is None:
        raise click.UsageError(
            f"no job has the concurrency key {key!r}, and nothing is set for it; `{prog()} limit list` shows those there are"
        )
    return found.document()


def _queue(inspector: Any, name: str) -> dict[str, Any]:
    found = inspector.stats(name)
    return {
        "queue": name,
        "queue_length": found.queue_length,
        "queued_count": found.queued_count,
        "active_count": found.active_count,
        "max_concurrent": found.max_concurrent,
        "oldest_enqueued_at": found.oldest_enqueued_at and to_iso(found.oldest_enqueued_at),
        "last_updated": to_iso(found.last_updated),
        **found.counters.document(),
        "total_base": found.totals["base"],
        "by_priority": {str(priority): dict(counts) for priority, counts in sorted(found.counters.by_priority.items())},
    }


def _history(steps: Any) -> dict[str, Any]:
    from fusion.store.read.totals import summary

    return {
        "history": [
            {
                "at": to_iso(step.at),
                **{name: step.counts[name] for name in ("completed", "failed", "retried")},
                "waiting": step.waiting(),
            }
            for step in steps
        ],
        "seconds": {str(priority): times for priority, times in summary(steps).items()},
    }


def _some(known: list[str], what: str) -> str:
    return f"known {what}: {', '.join(known[:10])}" if known else f"no {what} are known yet"
