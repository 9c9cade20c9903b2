"""`--query`: start an operation on every job that a query matches. The command runs it itself; if it ends early, workers go on with it."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NoReturn

import click

from fusion.cli.context import Cli, confirmed, prog
from fusion.cli.control import tell_unknown
from fusion.cli.output import echo, echo_json
from fusion.cli.progress import progress
from fusion.cli.slips import tell_slips
from fusion.cli.tables import table

if TYPE_CHECKING:
    from fusion.operations.impact import Impact
    from fusion.operations.plan import OperationPlan
    from fusion.operations.record import Operation

SCHEMA = 1
#: Seconds of work between two updates of the progress, and seconds to wait while another process runs it.
_STEP, _WAIT = 0.25, 0.3
#: Exit code after Ctrl-C.
_INTERRUPTED = 130

_OPTIONS = (
    click.option("--query", metavar="QUERY", help="All jobs that match: 'state:failed error:Timeout older:2h'."),
    click.option("-y", "--yes", is_flag=True, help="With --query: don't ask; needed where there is no terminal."),
    click.option("--detach", is_flag=True, help="With --query: let workers and schedulers run it, and end at once."),
)


def query_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --query --yes --detach."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def check(query: str | None, *others: object, yes: bool = False, detach: bool = False) -> bool:
    """Return True if a query was given. A usage error if other options that select jobs were given too, or --yes or --detach without a query."""
    if query is None and (yes or detach):
        raise click.UsageError("--yes and --detach go with --query")
    if query is not None and any(others):
        raise click.UsageError(
            "--query alone selects the jobs: add the other conditions to it, like queue:sms error:Timeout older:2h id:a,b"
        )
    return query is not None


def operate(
    cli: Cli,
    action: str,
    query: str,
    *,
    dry_run: bool,
    yes: bool,
    detach: bool,
    as_json: bool,
    reason: str = "",
    priority: str | None = None,
    purge: bool = False,
) -> None:
    """Show what the operation would change, ask for confirmation, start it and run it."""
    from fusion.operations import desk
    from fusion.operations.impact import measure
    from fusion.operations.plan import OperationPlan
    from fusion.store.access import search_inspector_of

    try:
        plan = OperationPlan.of(action, query, reason=reason, priority=priority, purge=purge)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    with progress("looking at jobs", quiet=as_json) as advance:
        impact = measure(search_inspector_of(cli.connection), plan, progress=advance)
    if not impact.matched:
        tell_slips(cli, plan.query)
    if dry_run:
        _tell_what_would_be(plan, impact, as_json)
        return
    if not impact.matched:
        if (queue := plan.query.value("queue")) is not None:
            tell_unknown(cli, [queue])
        if as_json:
            echo(json.dumps({"schema": SCHEMA, "operation": None, "matched": 0}))
        else:
            echo(f"No job matches {plan.query.text}")
        return
    if plan.action.asks and not yes:
        if not as_json:
            _tell_what_would_be(plan, impact, as_json=False, err=True)
        if not confirmed(f"{action.capitalize()} {impact.matched:,} jobs?", yes):
            echo("Nothing was done", err=True)
            sys.exit(1)
    operation = token_hex(6)
    try:
        desk.begin(cli.connection, plan, who(), impact.matched, operation=operation)
    except KeyboardInterrupt:
        _leave(cli, operation, as_json)
    if detach:
        _tell_detached(cli, operation, as_json)
    else:
        follow(cli, operation, as_json)


def who() -> str:
    """Return the caller's name for records."""
    from fusion.store.layout.pauses import this_user

    return this_user()


def follow(cli: Cli, operation: str, as_json: bool) -> None:
    """Run an operation to its end, or watch another process run it. After Ctrl-C, workers and schedulers run it."""
    from fusion.operations import desk
    from fusion.operations.carrier import Carrier

    carrier = Carrier(cli.connection, cli.settings, f"{who()}.{os.getpid()}")
    try:
        found = desk.find(cli.connection, operation)
        came = 0
        with progress(f"operation {operation}", found.total if found else 0, quiet=as_json) as advance:
            while True:
                status, _ = carrier.carry(operation, _STEP)
                found = desk.find(cli.connection, operation)
                if found is not None and found.came > came:
                    advance(found.came - came)
                    came = found.came
                if status == "busy":
                    time.sleep(_WAIT)
                elif status != "running":
                    break
    except KeyboardInterrupt:
        carrier.leave(operation)
        _leave(cli, operation, as_json)
    except BaseException:
        echo(f"Operation {operation} is not lost: workers carry it on, and so does {prog()} operations run {operation}", err=True)
        raise
    if found is None:
        echo(f"Error: operation {operation} is gone from Redis", err=True)
        sys.exit(1)
    if status in ("keyless", "unreadable"):
        needs = {"keyless": "signing keys: set secret_keys (FUSION_SECRET_KEYS)", "unreadable": "a newer version of Fusion"}[
            status
        ]
        echo(f"Error: to carry on operation {operation} takes {needs}", err=True)
        sys.exit(1)
    finish(cli, found, as_json)


def _leave(cli: Cli, operation: str, as_json: bool) -> NoReturn:
    """Print what happens to the operation after Ctrl-C, or its result if it has ended."""
    from fusion.operations import desk

    found = desk.find(cli.connection, operation)
    if found is None:
        echo("\nInterrupted: nothing was done", err=True)
        sys.exit(_INTERRUPTED)
    if found.status != "running":
        finish(cli, found, as_json)
        sys.exit(0)
    cli.changed(found.done)
    if found.carrier:
        goes_on = f"goes on: {found.carrier} carries it on"
    elif desk.has_carriers(cli.connection):
        goes_on = "goes on: a worker or scheduler carries it on"
    else:
        goes_on = "waits: no live worker or scheduler can carry it on"
    echo(f"\nOperation {operation} {goes_on}. What is done stays done.", err=True)
    echo(f"  how far it is:  {prog()} operations show {operation}", err=True)
    echo(f"  carry it on:    {prog()} operations run {operation}", err=True)
    echo(f"  cancel it:      {prog()} operations cancel {operation}", err=True)
    sys.exit(_INTERRUPTED)


def _tell_detached(cli: Cli, operation: str, as_json: bool) -> None:
    from fusion.operations import desk

    alive, found = desk.has_carriers(cli.connection), desk.find(cli.connection, operation)
    if as_json:
        echo_operation(cli, found)
    else:
        echo(f"Operation {operation} has begun; {prog()} operations show {operation} tells how far it is")
    if not alive:
        echo(f"No live worker or scheduler can carry it on: start one, or {prog()} operations run {operation}", err=True)


def echo_operation(cli: Cli, found: Operation | None) -> None:
    """Print an operation as JSON; null if there is none."""
    from fusion.views.base import to_json
    from fusion.views.operation import views_of

    shown = to_json(views_of(cli.connection, [found])[0]) if found else None
    echo(json.dumps({"schema": SCHEMA, "operation": shown}))


def finish(cli: Cli, found: Operation, as_json: bool) -> None:
    """Print the result and write it to the audit. Exit code 1 if the operation was canceled, or a job was refused."""
    cli.changed(found.done)
    if as_json:
        echo_operation(cli, found)
    else:
        canceled = f"; canceled by {found.canceled_by or 'a user'}" if found.status == "canceled" else ""
        echo(f"{found.done:,} jobs {found.word}, {found.skipped:,} skipped, {found.refused:,} refused{canceled}")
        for line in reasons(found):
            echo(line, err=True)
    if found.refused or found.status == "canceled":
        sys.exit(1)


def reasons(found: Operation) -> list[str]:
    """Return why jobs were skipped or refused, one line for each reason."""
    from fusion.operations.actions import WHY

    lines = []
    for word, count in found.why.items():
        example = f" (for example {found.examples[word]})" if word in found.examples else ""
        lines.append(f"  {count:,}: {WHY.get(word, word)}{example}")
    return lines


def _tell_what_would_be(plan: OperationPlan, impact: Impact, as_json: bool, err: bool = False) -> None:
    if as_json:
        from fusion.views.operation import OperationPlannedView

        echo_json(OperationPlannedView.of(plan, impact))
        return
    if impact.matched:
        parts = [(queue or "-", state, f"{count:,}") for (queue, state), count in impact.by.most_common()]
        echo("\n".join(table(("QUEUE", "STATE", "JOBS"), parts, right=(2,))), err=err)
        echo(err=err)
        echo("\n".join(table(("ID", "QUEUE", "STATE"), impact.examples)), err=err)
        if impact.matched > len(impact.examples):
            echo(f"... and {impact.matched - len(impact.examples):,} more", err=err)
        echo(err=err)
    echo(f"{impact.matched:,} jobs match {plan.query.text}" + f"; {plan.action.name} would take them" * (not err), err=err)
