"""`scheduler`: start a scheduler from its flags."""

from __future__ import annotations

import sys
from typing import Any

import click

from fusion.cli.child_flags import without_embedded_worker
from fusion.cli.context import Cli, shared_options
from fusion.cli.hints import command
from fusion.cli.logs import long_running, set_up_logging
from fusion.cli.setting_flags import given_settings, setting_flags
from fusion.cli.worker import level_of, pid_file, start_embedded
from fusion.settings.flags import SCHEDULER


@command(
    example="run_worker.py scheduler -c instance\n  run_worker.py scheduler --schedule shop.schedule --app shop --app-version 1.10.2"
)
@setting_flags(SCHEDULER)
@click.option("--embedded", is_flag=True, help="Use the built-in Redis; start it unless it runs.")
@long_running
@shared_options
def scheduler(cli: Cli, embedded: bool, pid: str | None, **given: Any) -> None:
    """Enqueue what is due: jobs enqueued for a time, retries, cron entries.

    Any number may run at once, on any machine; each tick is enqueued once. Entries are stored in Redis, and each scheduler runs all of them, whether
    they come from modules named by --schedule, from @recurring or from a program at run time. HUP reads the modules again; TERM ends it.
    """
    level, log_format, date_format = level_of(cli, given), given.pop("log_format"), given.pop("date_format")
    if embedded:
        cli.url = start_embedded(cli)
    settings = cli.load(**given_settings(SCHEDULER, given))
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
