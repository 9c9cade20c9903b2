"""`cancel` and `stop`: jobs by their ids, or by common properties."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from fusion.cli import bulk, names
from fusion.cli.context import Cli, prog, shared_options
from fusion.cli.control import tell_unknown
from fusion.cli.failed import age
from fusion.cli.hints import command
from fusion.cli.output import echo
from fusion.cli.progress import progress
from fusion.cli.recorded import recorded
from fusion.cli.tables import table
from fusion.exceptions import InvalidName
from fusion.status import JobStatus, why_not

if TYPE_CHECKING:
    from fusion.jobs.live import LiveJob

SCHEMA = 1
#: Exit code of `cancel` if a job still runs. `stop` has done its part then.
STILL_RUNNING = 3
#: Jobs that a dry run lists for people, and lines for running jobs, at most.
_SHOWN = 20


@dataclass(frozen=True)
class _Verb:
    """The command's action. `one` does it to one job by its id. `done`: the word for a job that waited. `running`: the sentence about a running
    job; `told`, `would`: the words after the number of running jobs, in a real and in a dry run."""

    name: str
    doing: str
    done: str
    running: str
    told: str
    would: str

    def one(self, cli: Cli, job_id: str) -> str:
        return cli.broker.cancel(job_id) if self is CANCEL else cli.broker.stop(job_id)


CANCEL = _Verb(
    "cancel",
    "canceling",
    "canceled",
    "is running: it is canceled when this run ends, unless that finishes or fails",
    "still running",
    "are running and would not be tried again",
)
STOP = _Verb(
    "stop",
    "stopping",
    "stopped",
    "is running: its worker was ordered to stop it; it is stopped unless it finishes or fails first",
    "being stopped by their workers",
    "are running, and their workers would stop them",
)


@dataclass
class _Answers:
    """The outcome for each job. `refused`: the reasons by id."""

    verb: _Verb
    done: int = 0
    pending: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return {"schema": SCHEMA, self.verb.done: self.done, "running": self.pending, "refused": self.refused}

    def tell(self) -> None:
        for job_id in self.pending[:_SHOWN]:
            echo(f"{job_id} {self.verb.running}")
        if len(self.pending) > _SHOWN:
            echo(f"... and {len(self.pending) - _SHOWN} more that run (--json lists all)")
        echo(f"{self.done} jobs {self.verb.done}" + f", {len(self.pending)} {self.verb.told}" * bool(self.pending))


_SAYS = ("query", "queue", "key", "fair_key", "function", "older_than", "newer_than")
_CHOICE = (
    click.argument("job_ids", nargs=-1, metavar="[JOB_ID]..."),
    click.option("--queue", metavar="NAME", help="All of this queue; a wildcard will do."),
    click.option("--key", metavar="KEY", help="All with this concurrency key."),
    click.option("--fair-key", metavar="KEY", help="All with this fair key."),
    click.option("--function", metavar="NAME", help="All calls of this function: tasks.sms.sendSMS, 'tasks.sms.*'."),
    click.option(
        "--older-than",
        callback=age,
        metavar="AGE",
        help="Only those enqueued longer ago, alone or with other options: 90s, 5m, 2h, 1d.",
    ),
    click.option("--newer-than", callback=age, metavar="AGE", help="Only those enqueued since."),
    click.option("--dry-run", is_flag=True, help="Only say how many, and which."),
    click.option("--json", "as_json", is_flag=True, help="One JSON document with the counts."),
)


def _chosen(function: Callable[..., None]) -> Callable[..., None]:
    """Add the ids and options that select jobs which have not ended."""
    for one in reversed(_CHOICE):
        function = one(function)
    return bulk.query_options(function)


@command(
    example="run_worker.py cancel otp-4711 otp-4712\n  run_worker.py cancel --key user:42 --dry-run\n"
    "  run_worker.py cancel --queue sms --function tasks.sms.sendSMS --older-than 2h"
)
@_chosen
@shared_options
@recorded("cancel", jobs="job_ids", says=_SAYS)
def cancel(cli: Cli, job_ids: tuple[str, ...], dry_run: bool, as_json: bool, **given: Any) -> None:
    """Cancel jobs, so that they do not run, or not run again.

    A job that waits, for its turn, a time or its key's limit, is canceled. A running job goes on and is not retried. A job must match all given
    options. Jobs that are enqueued meanwhile are left alone; after Ctrl-C each job is either canceled or untouched. Exit code 1 if a named job
    has ended in another way or does not exist, else 3 if one runs on.
    """
    _do(CANCEL, cli, job_ids, dry_run, as_json, given)


@command(
    example="run_worker.py stop report-4711\n  run_worker.py stop --key user:42 --dry-run\n"
    "  run_worker.py stop --function tasks.reports.monthly"
)
@_chosen
@shared_options
@recorded("stop", jobs="job_ids", says=_SAYS)
def stop(cli: Cli, job_ids: tuple[str, ...], dry_run: bool, as_json: bool, **given: Any) -> None:
    """Stop jobs, running ones included.

    A job that waits, for its turn, a time or its key's limit, is stopped. The worker of a running job is ordered to stop it: the task gets
    JobStopped, and is killed if it still runs after the worker's timeout_grace. A job must match all given options. Jobs that are enqueued
    meanwhile are left alone. Exit code 1 if a named job has ended in another way or does not exist; else 0, also while a job is being stopped.
    """
    _do(STOP, cli, job_ids, dry_run, as_json, given)


def _do(verb: _Verb, cli: Cli, job_ids: tuple[str, ...], dry_run: bool, as_json: bool, given: Mapping[str, Any]) -> None:
    query, yes, detach = (given[name] for name in ("query", "yes", "detach"))
    given = {name: value for name, value in given.items() if name not in ("query", "yes", "detach")}
    narrow = any(value is not None for value in given.values())
    if bulk.check(query, job_ids, narrow, yes=yes, detach=detach):
        bulk.operate(cli, verb.name, query or "", dry_run=dry_run, yes=yes, detach=detach, as_json=as_json)
        return None
    if bool(job_ids) == narrow:
        raise click.UsageError(
            "give job ids, or select jobs by --queue, --key, --fair-key, --function, --older-than, --newer-than, or by --query"
        )
    if not narrow:
        if dry_run:
            raise click.UsageError("--dry-run goes with the options that select jobs, not with ids")
        ids = list(dict.fromkeys(job_ids))
        with progress(verb.doing, len(ids), quiet=as_json) as advance:
            answers = _of_ids(verb, cli, ids, advance)
        return _finish(cli, answers, as_json)
    if given["queue"] is not None:
        names.check(given["queue"], patterns=True)

    from fusion.jobs.live import LiveFilter, live_jobs

    with progress("looking at jobs", quiet=as_json) as advance:
        found = list(live_jobs(cli.inspector, LiveFilter(**given), advance))
    if not found and given["queue"] is not None:
        tell_unknown(cli, [given["queue"]])
    if dry_run:
        _tell_what_would_be(verb, found, as_json)
        return None
    with progress(verb.doing, len(found), quiet=as_json) as advance:
        answers = _of_found(verb, cli, found, advance)
    return _finish(cli, answers, as_json)


def _finish(cli: Cli, answers: _Answers, as_json: bool) -> None:
    cli.changed(answers.done + len(answers.pending))
    if as_json:
        echo(json.dumps(answers.document()))
    else:
        answers.tell()
    for job_id, why in answers.refused.items():
        echo(f"Unable to {answers.verb.name} {job_id}: {why}", err=True)
    if answers.refused:
        sys.exit(1)
    if answers.pending and answers.verb is CANCEL:
        sys.exit(STILL_RUNNING)


def _of_ids(verb: _Verb, cli: Cli, job_ids: Iterable[str], advance: Callable[[int], None]) -> _Answers:
    from fusion.store.layout.names import check_job_id
    from fusion.store.query.fields import FIELDS

    answers = _Answers(verb)
    for job_id in job_ids:
        advance(1)
        try:
            answer = verb.one(cli, check_job_id(job_id))
        except InvalidName as error:
            selects = (
                f"to select jobs: {prog()} {verb.name} --query {quote(job_id)}" if job_id.partition(":")[0] in FIELDS else error
            )
            answers.refused[job_id] = f"no such job; {selects}"
            continue
        if answer == verb.done:
            answers.done += 1
        elif answer == "pending":
            answers.pending.append(job_id)
        else:
            answers.refused[job_id] = "no such job" if answer == "missing" else why_not(answer)
    return answers


def _of_found(verb: _Verb, cli: Cli, found: Iterable[LiveJob], advance: Callable[[int], None]) -> _Answers:
    """Apply it to jobs that were just found. A job that has ended since then, or is gone, counts as done."""
    answers = _Answers(verb)
    for job in found:
        answer = verb.one(cli, job.id)
        advance(1)
        if answer == verb.done:
            answers.done += 1
        elif answer == "pending":
            answers.pending.append(job.id)
        elif answer != "missing" and not JobStatus(answer).is_terminal:
            answers.refused[job.id] = why_not(answer)
    return answers


def _tell_what_would_be(verb: _Verb, found: list[LiveJob], as_json: bool) -> None:
    running = [job.id for job in found if job.status == "started"]
    waiting = len(found) - len(running)
    if as_json:
        jobs = [{"id": job.id, "status": job.status, "queue": job.queue, "function": job.function} for job in found]
        echo(json.dumps({"schema": SCHEMA, verb.done: waiting, "running": running, "dry_run": True, "jobs": jobs}))
        return
    if found:
        cells = [(job.id, job.status, job.queue, job.function or "-") for job in found[:_SHOWN]]
        echo("\n".join(table(("ID", "STATE", "QUEUE", "FUNCTION"), cells)))
        if len(found) > _SHOWN:
            echo(f"... and {len(found) - _SHOWN} more (--json lists all)")
        echo()
    echo(f"{waiting} jobs would be {verb.done}" + f", {len(running)} {verb.would}" * bool(running))
