"""`scheduler`: from flags to a running scheduler."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from fusion.cli import names
from fusion.cli.child_flags import without_embedded_worker
from fusion.cli.context import Cli, shared_options
from fusion.cli.hints import command
from fusion.cli.logs import long_running, set_up_logging
from fusion.cli.worker import level_of, pid_file, start_embedded

#: What it has in common with `start`, which hands these on.
DECLARING = (
    click.option("--schedule", multiple=True, metavar="MODULE", help="Store the cron entries that MODULE declares. Repeatable."),
    click.option("--app", metavar="NAME", help="Whose entries those are.  [default: default]"),
    click.option(
        "--app-version", metavar="VERSION", help="Of the code, like 1.10.2; a higher one removes what it no longer declares."
    ),
)


def declaring_flags(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --schedule --app --app-version."""
    for option in reversed(DECLARING):
        function = option(function)
    return function


@command(
    example="run_worker.py scheduler -c instance\n  run_worker.py scheduler --schedule shop.schedule --app shop --app-version 1.10.2"
)
@declaring_flags
@click.option(
    "--tasks", multiple=True, metavar="MODULE", help="Also take what tasks in MODULE declare by @recurring. Repeatable."
)
@click.option("-n", "--name", metavar="NAME", help="Its name.  [default: host.pid]")
@click.option("--lease", metavar="SECONDS", help="Silent for so long, it counts as dead.  [default: 30]")
@click.option("--probe-port", metavar="PORT", help="Answer /livez and /readyz there; 0 for any port.")
@click.option("--probe-host", metavar="HOST", help="At which address.  [default: 127.0.0.1]")
@click.option("--embedded", is_flag=True, help="Use the built-in Redis; start it unless it runs.")
@long_running
@shared_options
def scheduler(cli: Cli, embedded: bool, pid: str | None, schedule: tuple[str, ...], tasks: tuple[str, ...], **given: Any) -> None:
    """Enqueue what is due: jobs enqueued for a time, retries, cron entries.

    Any number may run at once, on any machine; each tick is enqueued once. Entries are kept in Redis and run whoever declared them: modules
    named by --schedule, tasks by @recurring, or a program at run time. HUP reads the modules again; TERM ends it.
    """
    level, log_format, date_format = level_of(cli, given), given.pop("log_format"), given.pop("date_format")
    if embedded:
        cli.url = start_embedded(cli)
    flags = dict(given)
    if schedule:
        flags["schedule"] = tuple(names.split(schedule))
    if tasks:
        flags["more_tasks"] = tuple(names.split(tasks))
    settings = cli.load(**flags)
    set_up_logging(settings, level, log_format, date_format)
    from fusion.kernel import titles
    from fusion.kernel.importing import task_modules
    from fusion.kernel.linux import close_to_others
    from fusion.runtime.signals import Signals
    from fusion.scheduler.loading import Sources
    from fusion.scheduler.process import SchedulerProcess

    without_embedded_worker()
    Signals.ends_process = True
    if not settings.debuggable:
        close_to_others()
    titles.show("scheduler", settings.name or "")
    with pid_file(pid):
        sources = Sources(settings.schedule or (), task_modules(settings.tasks), settings.unnamed_tasks)
        code = SchedulerProcess(settings, sources).run()
    sys.exit(code)
