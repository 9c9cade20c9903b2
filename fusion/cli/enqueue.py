"""`enqueue`: one call of a function, with the options of a job as flags."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import click

from fusion.cli import names
from fusion.cli.arguments import parse
from fusion.cli.context import Cli, shared_options
from fusion.cli.hints import command
from fusion.cli.output import echo, styled
from fusion.cli.scheduled import due
from fusion.enqueue.build import JobData, build
from fusion.enqueue.call import terms_of
from fusion.enqueue.options import OF_CALLS, SPELLINGS, EnqueueOptions, Spelling, from_text, spelling_of
from fusion.exceptions import FusionError, OptionError
from fusion.kernel import defaults
from fusion.kernel.importing import check_path
from fusion.kernel.timeutil import to_iso

if TYPE_CHECKING:
    from fusion.job import Job

SCHEMA = 1


def _job_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add a flag for every option whose value can be a text. The command gets them under their names in the HTTP API."""
    for spelling in reversed(SPELLINGS.values()):
        function = _flag(spelling)(function)
    return function


def _flag(spelling: Spelling) -> Callable[..., Any]:
    reads = spelling.reads
    if not reads.metavar:
        return click.option(spelling.flag, spelling.field, is_flag=True, default=None, help=spelling.meaning)

    def read(ctx: click.Context, param: click.Parameter, given: str | tuple[str, ...] | None) -> Any:
        try:
            if isinstance(given, tuple):
                return [reads.from_text(text) for text in given] or None
            return None if given is None else reads.from_text(given)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    metavar, repeats = reads.metavar, reads.repeats
    return click.option(spelling.flag, spelling.field, callback=read, metavar=metavar, multiple=repeats, help=spelling.meaning)


@command(
    example='run_worker.py enqueue tasks.sms.sendSMS :\'{"to": "+4915100000", "body": "Hi"}\' -q sms --priority high\n'
    "  run_worker.py enqueue tasks.demo.add 1 2 scale:=3 --dry-run\n"
    "  run_worker.py enqueue tasks.demo.add 1 2 --schedule-in 5m"
)
@click.argument("function")
@click.argument("arguments", nargs=-1, metavar="[ARGS]...")
@click.option("-q", "--queue", default=defaults.QUEUE, show_default=True, help="Its queue.")
@_job_options
@click.option("-S", "--serializer", type=click.Choice(["json", "pickle"]), help="How to store the arguments.  [default: json]")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("--dry-run", is_flag=True, help="Print the job as it would be stored, as JSON; enqueue nothing.")
@shared_options
def enqueue(
    cli: Cli,
    function: str,
    arguments: tuple[str, ...],
    queue: str,
    quiet: bool,
    dry_run: bool,
    serializer: str | None,
    **given: Any,
) -> None:
    """Enqueue one call of a function.

    FUNCTION is its dotted path. ARGS are texts; with `:` in front an argument is JSON, with `%` a Python literal. `key=text`, `key:=JSON` and
    `key%=literal` are keywords. `@file` as the value stands for the content of the file.
    """
    _check_function(function)
    names.check(queue)
    args, kwargs = parse(arguments)
    settings = cli.load(serializer=serializer)
    options = _options(given)
    try:
        data = build(function, tuple(args), kwargs, options, settings)
        terms_of(options, settings)
    except OptionError as error:
        spelling = spelling_of(error.name)
        raise click.UsageError(error.spelled(spelling.flag, " ") if spelling else str(error)) from None
    if dry_run:
        echo(json.dumps(_as_stored(queue, data), indent=2))
        return
    from fusion.queue import Queue

    terms = {name: getattr(options, name) for name in OF_CALLS}
    (job,) = Queue(queue, cli.connection).enqueue_many([data], **terms)
    if not quiet:
        shown = [*map(repr, args), *sorted(f"{key}={value!r}" for key, value in kwargs.items())]
        call = styled(f"{function}({', '.join(shown)})", fg="blue")
        if job.duplicate_of == job.id:
            state = job.last_status or "gone"
            echo(f"Not enqueued: {call} is a duplicate of job-id '{job.id}', which has its unique key and is {state}.")
        elif job.last_status == "canceled":
            echo(f"Discarded {call} with job-id '{job.id}': as many of its concurrency key run as may (--on-conflict discard).")
        else:
            instead = f" in place of '{job.duplicate_of}'" if job.duplicate_of else ""
            echo(f"Enqueued {call} with job-id '{job.id}'{instead}{_when(data, job)}.")


def _check_function(function: str) -> None:
    try:
        check_path(function)
    except FusionError as error:
        raise click.UsageError(str(error)) from None
    if "." not in function:
        raise click.UsageError(f"{function!r} has no module; a function is named like tasks.sms.sendSMS")


def _options(given: dict[str, Any]) -> EnqueueOptions:
    read = {name: value for name, value in given.items() if value is not None}
    if "retry_interval" in read and not (read.get("retry_max") or "retry_within" in read):
        raise click.UsageError("--retry-interval needs --retry-max N or --retry-within TIME")
    if "enqueue_in" in read and "enqueue_at" in read:
        raise click.UsageError("give --schedule-at or --schedule-in, not both")
    return from_text(read)


def _as_stored(queue: str, data: JobData) -> dict[str, Any]:
    new = data.new
    fields = {name: _shown(value) for name, value in new.fields.items() if value is not None}
    time = {} if new.due is None else {"due": to_iso(_moment(new.due))}
    delay = {} if new.delay is None else {"delay": new.delay}
    known = {"schema": SCHEMA, "queue": queue, "id": new.id, "priority": new.priority, "at_front": new.front}
    return {**known, **time, **delay, "fields": fields}


def _when(data: JobData, job: Job) -> str:
    """Return in words when the job is due, if it waits for a time; by the server's clock, like its time of enqueueing."""
    at, new = job.created_at, data.new
    if at is None or job.get_status(refresh=False) != "scheduled":
        return ""
    return ", " + due(at + timedelta(seconds=new.delay or 0) if new.due is None else _moment(new.due), at)


def _moment(unix: float) -> datetime:
    return datetime.fromtimestamp(unix, timezone.utc)


def _shown(value: Any) -> str:
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"{len(value)} bytes of pickle"
