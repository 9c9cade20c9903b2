"""`relay`: start a relay from its flags."""

from __future__ import annotations

import sys
from typing import Any

import click

from fusion.cli.context import Cli, shared_options
from fusion.cli.hints import command
from fusion.cli.logs import long_running, set_up_logging
from fusion.cli.setting_flags import given_settings, setting_flags
from fusion.cli.worker import level_of, pid_file, start_embedded
from fusion.settings.flags import RELAY


@command(
    example="run_worker.py relay -c instance\n  run_worker.py relay --events-file events.jsonl\n"
    "  FUSION_ELASTICSEARCH_URL=https://localhost:9200 run_worker.py relay"
)
@setting_flags(RELAY)
@click.option("--embedded", is_flag=True, help="Use the built-in Redis; start it unless it runs.")
@long_running
@shared_options
def relay(cli: Cli, embedded: bool, pid: str | None, **given: Any) -> None:
    """Deliver the events of all jobs to Elasticsearch, a file or the log; deliver callbacks.

    Any number may run at once, on any machine; they share the work. Errors and delays here do not affect jobs. Events that a sink can't accept
    are kept in Redis, up to a million, and delivered later: at least once, with an id that identifies a repetition. `events stats` shows the
    progress of each sink. INT or TERM ends it when the current write is done.
    """
    level, log_format, date_format = level_of(cli, given), given.pop("log_format"), given.pop("date_format")
    if embedded:
        cli.url = start_embedded(cli)
    settings = cli.load(**given_settings(RELAY, given))
    set_up_logging(settings, level, log_format, date_format)
    from fusion.courier import Courier
    from fusion.kernel import titles
    from fusion.kernel.linux import close_to_others
    from fusion.relay.process import RelayProcess
    from fusion.runtime.signals import Signals
    from fusion.sinks.configured import sinks_of

    Signals.ends_process = True
    if not settings.debuggable:
        close_to_others()
    titles.show("relay", settings.name or "")
    with pid_file(pid):
        code = RelayProcess(settings, sinks_of(settings) if settings.sinks else [], Courier(settings)).run()
    sys.exit(code)
