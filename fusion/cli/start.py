"""`start`: workers under a supervisor. Takes every flag of `worker`, has it checked as `worker` does, and hands it on."""

from __future__ import annotations

import os
import sys
from typing import Any

import click
from click.core import ParameterSource

from fusion import defaults
from fusion.cli.context import Cli, shared_options
from fusion.cli.hints import command
from fusion.cli.worker import pid_file, prepare, worker
from fusion.process.child import Kind
from fusion.process.stable import task_modules

#: Of the flags that both have, those that mean the supervisor.
_NOT_HANDED_ON = {"pid", "embedded", "probe_port"}


@command(
    example="run_worker.py start -n 4 --customq all\n  run_worker.py start -n 2 -c instance --customq sms,email --slots 4 --max-jobs 10000"
)
@click.option("-n", "--num-workers", type=click.IntRange(1, 256), default=1, metavar="N", help="Workers.  [default: 1]")
@click.option(
    "--shutdown-timeout",
    metavar="SECONDS",
    help=f"What they get to finish their jobs when told to stop.  [default: {defaults.SHUTDOWN_TIMEOUT:g}]",
)
@click.option("--name", metavar="NAME", help="Their name; the second is NAME.1.  [default: host.pid]")
@click.option("--pid", metavar="FILE", help="Write the supervisor's process id to FILE while it runs.")
@shared_options
def start(
    cli: Cli, num_workers: int, shutdown_timeout: str | None, name: str | None, pid: str | None, embedded: bool, **given: Any
) -> None:
    """Run several workers unattended: what dies is replaced.

    Takes the flags of `worker` for each of them. What a dead worker ran goes back to its queue at once.

    INT or TERM ends all when their jobs are done, cut off after --shutdown-timeout; twice, or QUIT: at once. HUP replaces one after the
    other, each only once its successor is ready.
    """
    flags = _as_typed(click.get_current_context())
    plan = prepare(cli, embedded, name=name, shutdown_timeout=shutdown_timeout, **given)
    if embedded and cli.url:
        flags = ["--url", cli.url, *flags]
    if plan.settings.probe_port is not None:
        flags = ["--probe-port", "0", *flags]  # the port is the supervisor's; one each is free
    task_modules(plan.settings.tasks)  # a wrong one is told here, not by each worker

    from fusion.process.supervisor import Supervisor
    from fusion.store.broker import Broker
    from fusion.store.connections import connect

    settings = plan.settings
    connection = connect(settings, role="worker")
    with pid_file(pid):
        code = Supervisor(settings, Broker.of(connection, settings), _kinds(num_workers, flags), _program()).run()
    connection.close()
    sys.exit(code)


# What is checked for one worker is right for all of them.
start.params += [param for param in worker.params if param.name not in {own.name for own in start.params}]


def _kinds(workers: int, flags: list[str]) -> list[Kind]:
    """What a service consists of."""
    return [Kind("worker", ("worker", *flags), workers)]


def _as_typed(context: click.Context) -> list[str]:
    """The command line again, less what is not for a worker."""
    typed: list[str] = []
    queues: list[str] = []
    for param in worker.params:
        name = str(param.name)
        if name in _NOT_HANDED_ON or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        value = context.params[name]
        if isinstance(param, click.Argument):
            queues = ["--", *value]
        elif isinstance(param, click.Option) and param.is_flag:
            typed.append(max(param.opts if value else param.secondary_opts, key=len))
        else:
            for one in value if param.multiple else [value]:
                typed += [max(param.opts, key=len), str(one)]
    return typed + queues


def _program() -> list[str]:
    """What to start, so that `ps` shows the workers as their supervisor was started."""
    script = sys.argv[0]
    if os.path.basename(script) == "__main__.py" or not os.path.isfile(script):
        return [sys.executable, "-m", "fusion"]
    return [sys.executable, script]
