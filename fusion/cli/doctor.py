"""`doctor`: what is wrong, why, and the command that fixes it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from fusion.cli.context import Cli, prog, shared_options
from fusion.cli.health import UNHEALTHY
from fusion.cli.hints import command
from fusion.cli.output import echo, echo_json, styled
from fusion.cli.tables import folded

if TYPE_CHECKING:
    from fusion.doctor.verdict import Verdict

_COLOURS = {"healthy": "green", "strained": "yellow", "unhealthy": "red", "fail": "red", "warn": "yellow", "note": None}
SCHEMA = 1


@command(example="run_worker.py doctor\n  run_worker.py doctor --strict --json | jq '.findings[].fix'")
@click.option("--strict", is_flag=True, help="Exit code 3 for warnings, too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@shared_options
def doctor(cli: Cli, strict: bool, as_json: bool) -> None:
    """Show what is wrong and how to fix it.

    Checks Redis, this machine, queues, workers, schedulers, jobs that fail or are stuck, sinks and callbacks. It changes nothing, and its cost
    does not grow with the number of jobs. Levels: fail, act now; warn, act soon; note, good to know. Exit code 0: no check failed; 3: one did;
    1: Redis does not answer.
    """
    from fusion.doctor.look import Look
    from fusion.doctor.verdict import CHECKS, examine, of

    look = Look(cli.connection, cli.settings, prog())
    found = of(look, examine(look))
    if as_json:
        from fusion.views.finding import DoctorView

        echo_json(DoctorView.of_all(found, [check.name for check in CHECKS]))
    else:
        echo(text(found, len(CHECKS)))
    levels = {one.level for one in found.findings}
    sys.exit(UNHEALTHY if "fail" in levels or (strict and "warn" in levels) else 0)


def text(found: Verdict, checks: int) -> str:
    """Return the verdict, and each finding with its fix."""
    counts = {level: sum(one.level == level for one in found.findings) for level in ("fail", "warn", "note")}
    told = ", ".join(f"{count} {level}" for level, count in counts.items() if count) or "nothing found"
    lines = [f"{styled(found.word, fg=_COLOURS[found.word])}: {checks} checks, {told}; {found.rate:g} jobs end a minute"]
    for one in found.findings:
        what, *more = folded(f"{one.check}: {one.what} [{one.code}]", 6, taken=len(one.level) + 2)
        lines += ["", f"{styled(one.level.upper(), fg=_COLOURS[one.level])}  {what}", *more]
        lines += [f"      $ {fix}" if number == 0 else f"        {fix}" for number, fix in enumerate(one.fix.split("\n"))]
    return "\n".join(lines)
