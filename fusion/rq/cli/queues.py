"""`empty`, `requeue`, `suspend`, `resume` and `enqueue`."""

from __future__ import annotations

import importlib
from ast import literal_eval
from collections.abc import Iterable
from datetime import datetime, timedelta
from json import loads
from typing import Any

import click

from fusion.exceptions import InvalidJobOperation, NoSuchJobError
from fusion.rq.cli.setup import Setup, with_setup
from fusion.rq.retry import Retry
from fusion.rq.utils import get_call_string, parse_timeout
from fusion.store.client.connections import get_current_connection


@click.command()
@click.option("--all", "-a", "every", is_flag=True, help="All queues.")
@click.argument("queues", nargs=-1)
@with_setup
def empty(setup: Setup, queues: tuple[str, ...], every: bool) -> None:
    """Delete the waiting jobs of queues."""
    found = setup.queues(()) if every else [setup.queue(name) for name in queues]
    if not found:
        click.echo("Nothing to do")
    for queue in found:
        click.echo(f"{queue.empty()} jobs removed from {queue.name} queue")


@click.command()
@click.option("--all", "-a", "every", is_flag=True, help="All failed jobs of the queue.")
@click.option("--queue", required=True, help="Name of the queue.")
@click.argument("job_ids", nargs=-1)
@with_setup
def requeue(setup: Setup, queue: str, every: bool, job_ids: tuple[str, ...]) -> None:
    """Put failed jobs back into their queue."""
    registry = setup.queue(queue).failed_job_registry
    ids = registry.get_job_ids() if every else list(job_ids)
    if not ids:
        click.echo("Nothing to do")
        return
    click.echo(f"Requeueing {len(ids)} jobs from failed queue")
    failed = 0
    for job_id in ids:
        try:
            registry.requeue(job_id)
        except (InvalidJobOperation, NoSuchJobError):
            failed += 1
    if failed:
        click.secho(f"Unable to requeue {failed} jobs from failed job registry", fg="red")


@click.command()
@click.option("--duration", type=int, help="Seconds; none: until `resume`.")
@with_setup
def suspend(setup: Setup, duration: int | None) -> None:
    """Have all workers start no more jobs."""
    if duration is not None and duration < 1:
        click.echo("Duration must be an integer greater than 1")
        raise SystemExit(1)
    importlib.import_module("fusion.rq.suspension").suspend(get_current_connection(), duration)
    if duration:
        click.echo(
            f"Suspending workers for {duration} seconds. No new jobs will be started during that time, but then will automatically resume"
        )
    else:
        click.echo("Suspending workers.  No new jobs will be started.  But current jobs will be completed")


@click.command()
@with_setup
def resume(setup: Setup) -> None:
    """Have the workers go on."""
    importlib.import_module("fusion.rq.suspension").resume(get_current_connection())
    click.echo("Resuming workers.")


@click.command()
@click.option("--queue", "-q", default="default", help="Name of the queue.")
@click.option("--timeout", help="Time limit of the job.")
@click.option("--result-ttl", help="How long a finished job is kept.")
@click.option("--ttl", help="How long it may wait.")
@click.option("--failure-ttl", help="How long a failed job is kept.")
@click.option("--description", help="What is shown for the job.")
@click.option("--depends-on", multiple=True, help="Id of a job that must finish first.")
@click.option("--job-id", help="Id of the job.")
@click.option("--at-front", is_flag=True, help="Put it before the others.")
@click.option("--retry-max", type=int, default=0, help="Most retries.")
@click.option("--retry-interval", type=int, multiple=True, default=[0], help="Seconds before a retry.")
@click.option("--schedule-in", help="Time until it is enqueued: 10s, 5m, 2d.")
@click.option("--schedule-at", help="Local time at which it is enqueued: 2027-05-27T21:45:00.")
@click.option("--quiet", is_flag=True, help="Print nothing.")
@click.argument("function")
@click.argument("arguments", nargs=-1)
@with_setup
def enqueue(
    setup: Setup,
    queue: str,
    description: str | None,
    depends_on: tuple[str, ...],
    retry_max: int,
    retry_interval: tuple[int, ...],
    schedule_in: str | None,
    schedule_at: str | None,
    quiet: bool,
    function: str,
    arguments: tuple[str, ...],
    at_front: bool,
    **options: Any,
) -> None:
    """Enqueue a call. ARGUMENTS: text, :json, %literal, key=text, key:=json, key%=literal; @file in place of a text."""
    args, kwargs = _parsed(arguments)
    call = get_call_string(function, args, kwargs) or function
    options |= {"description": description or call, "retry": Retry(retry_max, list(retry_interval)) if retry_max > 0 else None}
    if depends_on:
        options["depends_on"] = list(depends_on)
    target, due = setup.queue(queue), _due(schedule_in, schedule_at)
    if due is None:
        job = target.enqueue_call(function, args, kwargs, at_front=at_front, **options)
    else:
        timeout = options.pop("timeout")
        job = target.enqueue_at(due, function, args=args, kwargs=kwargs, job_timeout=timeout, at_front=at_front, **options)
    if not quiet:
        click.echo(f"Enqueued {click.style(call, fg='blue')} with job-id '{job.id}'.")


def _due(schedule_in: str | None, schedule_at: str | None) -> datetime | None:
    if schedule_in is None and schedule_at is None:
        return None
    if schedule_in is not None and schedule_at is not None:
        raise click.UsageError("You can't specify both --schedule-in and --schedule-at")
    if schedule_in is not None:
        return datetime.now().astimezone() + timedelta(seconds=parse_timeout(schedule_in) or 0)
    try:
        return datetime.strptime(str(schedule_at), "%Y-%m-%dT%H:%M:%S").astimezone()
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--schedule-at") from None


def _parsed(arguments: Iterable[str]) -> tuple[list[Any], dict[str, Any]]:
    """Return the task's arguments, written as RQ has it."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for argument in arguments:
        head, equals, rest = argument.partition("=")
        if argument[:1] in (":", "%") or not equals or not head:
            name, kind, text = None, argument[:1] if argument[:1] in (":", "%") else "", argument
            text = text[1:] if kind else text
        else:
            kind = head[-1] if head[-1] in ":%" else ""
            name, text = head.removesuffix(kind), rest
        value = _value(kind, text, name or f"{len(args) + 1}. non keyword argument")
        if name is None:
            args.append(value)
        elif name in kwargs:
            raise click.BadParameter("You can't specify multiple values for the same keyword.")
        else:
            kwargs[name] = value
    return args, kwargs


def _value(kind: str, text: str, where: str) -> Any:
    if text.startswith("@"):
        try:
            with open(text[1:]) as source:
                text = source.read()
        except OSError:
            raise click.FileError(text[1:], "Not found") from None
    try:
        return loads(text) if kind == ":" else literal_eval(text) if kind == "%" else text
    except Exception:
        what = f"Unable to parse {where} as JSON." if kind == ":" else f"Unable to eval {where} as Python object."
        raise click.BadParameter(what) from None
