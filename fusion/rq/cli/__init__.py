"""RQ's command line over Fusion: `frq`, and `python -m fusion.rq`.

Flags and output are RQ's. A flag that Fusion does not need is accepted, with a line on stderr. One that would mean something else is refused,
with what to do instead.
"""

from __future__ import annotations

import click

from fusion import __version__
from fusion.rq.cli.info import info
from fusion.rq.cli.queues import empty, enqueue, requeue, resume, suspend
from fusion.rq.cli.workers import cron, worker, worker_pool


@click.group()
@click.version_option(__version__)
def main() -> None:
    """RQ's commands, for Fusion's queues and workers."""


for _command in (cron, empty, enqueue, info, requeue, resume, suspend, worker, worker_pool):
    main.add_command(_command)
