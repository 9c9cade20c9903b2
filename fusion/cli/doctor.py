"""`doctor`: what is wrong, why, and the command that fixes it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from fusion.cli.context import Cli, prog, shared_options
from fusion.cli.health import UNHEALTHY
from fusion.cli.hints import command
from fusion.cli.output import echo, echo_json, shown, styled
from fusion.cli.progress import progress
from fusion.cli.tables import cut, folded, room

if TYPE_CHECKING:
    from fusion.doctor.verdict import Verdict

_COLOURS = {"healthy": "green", "strained": "yellow", "unhealthy": "red", "fail": "red", "warn": "yellow", "note": None}
SCHEMA = 1


@command(
    example="run_worker.py doctor\n  run_worker.py doctor --strict --json | jq '.findings[].fix'\n"
    "  run_worker.py doctor --watch --notify https://hooks.example.com/fusion"
)
@click.option("--strict", is_flag=True, help="Exit code 3 for warnings, too; with --watch, they are bad, too.")
@click.option("--notes", is_flag=True, help="Show notes in full, with their fixes; on a terminal each is one line otherwise.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option("--watch", is_flag=True, help="Look again and again; show when the verdict turns bad, and when it is well again.")
@click.option("--every", type=click.FloatRange(1, 3600), metavar="SECONDS", help="Between two looks of --watch.  [default: 10]")
@click.option(
    "--notify",
    envvar="FUSION_DOCTOR_NOTIFY",
    show_envvar=True,
    metavar="URL",
    help="Send URL an alert when the verdict of --watch turns, as a callback.",
)
@shared_options
def doctor(cli: Cli, strict: bool, notes: bool, as_json: bool, watch: bool, every: float | None, notify: str | None) -> None:
    """Show what is wrong and how to fix it.

    Checks Redis, this machine, queues, workers, schedulers, jobs that fail or are stuck, sinks and callbacks. It changes nothing, and its cost
    does not grow with the number of jobs. Levels: fail, act now; warn, act soon; note, good to know. Exit code 0: no check failed; 3: one did;
    1: Redis does not answer.

    --watch makes the cheap checks only, those of the verdict that `info` shows. Two looks in a row decide. Of several that watch for one URL one
    sends the alert. If no relay is alive, it starts one. Without Redis no alert can be sent: its log and exit code show that.
    """
    if watch:
        if as_json:
            raise click.UsageError("--json and --watch exclude each other")
        sys.exit(_watch(cli, notify, every or 10.0, strict))
    if every is not None or _given("notify"):
        raise click.UsageError("--every and --notify are for --watch; add it")
    from fusion.doctor.look import Look
    from fusion.doctor.verdict import CHECKS, examine, of

    look = Look(cli.connection, cli.settings, prog())
    with progress("examining", len(CHECKS), quiet=as_json) as advance:
        found = of(look, examine(look, progress=advance))
    if as_json:
        from fusion.views.finding import DoctorView

        echo_json(DoctorView.of_all(found, [check.name for check in CHECKS]))
    else:
        echo(text(found, len(CHECKS), None if notes else room()))
    levels = {one.level for one in found.findings}
    sys.exit(UNHEALTHY if "fail" in levels or (strict and "warn" in levels) else 0)


def _given(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _watch(cli: Cli, url: str | None, every: float, strict: bool) -> int:
    """Watch until stopped; return the exit code."""
    from fusion.callbacks import check_url
    from fusion.cli.child_flags import hand_on_url
    from fusion.cli.logs import set_up_logging
    from fusion.cli.worker import relay_command
    from fusion.doctor.watch import Watch
    from fusion.exceptions import OptionError
    from fusion.kernel import titles
    from fusion.kernel.linux import close_to_others
    from fusion.runtime.signals import Signals
    from fusion.runtime.terminal_log import DATE_FORMAT, LOG_FORMAT

    settings = cli.load()
    set_up_logging(settings, "DEBUG" if cli.verbose else None, LOG_FORMAT, DATE_FORMAT)
    try:
        checked = check_url("--notify", url, settings)
    except OptionError as error:
        raise click.UsageError(f"--notify: {error.rule}") from None
    hand_on_url(cli.url)
    Signals.ends_process = True
    if not settings.debuggable:
        close_to_others()
    titles.show("doctor --watch")
    return Watch(settings, checked, every, strict=strict, relay=relay_command(), program=prog()).run()


def text(found: Verdict, checks: int, within: int | None = None) -> str:
    """Return the verdict, and each finding with its fix. `within`: the columns to which each note is cut, without its fix; None for whole notes."""
    counts = {level: sum(one.level == level for one in found.findings) for level in ("fail", "warn", "note")}
    told = ", ".join(f"{count} {level}" for level, count in counts.items() if count) or "nothing found"
    lines = [f"{styled(found.word, fg=_COLOURS[found.word])}: {checks} checks, {told}; {found.rate:g} jobs end a minute"]
    notes = [one for one in found.findings if one.level == "note"] if within else []
    for one in found.findings[: len(found.findings) - len(notes)]:
        what, *more = folded(f"{one.check}: {one.what} [{one.code}]", 6, taken=len(one.level) + 2)
        lines += ["", f"{styled(one.level.upper(), fg=_COLOURS[one.level])}  {what}", *more]
        lines += [f"      -> {fix}" for fix in one.fix.split("\n")]
    if within and notes:
        lines += ["", *(cut(shown(f"NOTE  {one.check}: {one.what}"), within) for one in notes)]
        lines += [f"      -> {prog()} doctor --notes shows what to do"]
    return "\n".join(lines)
