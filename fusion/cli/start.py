"""`start`: workers under a supervisor. It takes every flag of `worker`, checks it like `worker`, and passes it to the workers."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from typing import Any

import click

from fusion.cli import executors
from fusion.cli.child_flags import as_typed, hand_on_url, program
from fusion.cli.context import Cli, shared_options
from fusion.cli.hints import command
from fusion.cli.relay import relay
from fusion.cli.scheduler import scheduler
from fusion.cli.setting_flags import given_settings, own_flags, setting_flags
from fusion.cli.worker import WorkerFlags, pid_file, prepare, worker
from fusion.kernel import titles
from fusion.kernel.importing import task_modules
from fusion.runtime.child_process import Kind
from fusion.settings.flags import RELAY, SCHEDULER, START

#: Shared flags that apply to the supervisor itself. A scheduler or relay beside workers also needs a name of its own.
_NOT_HANDED_ON = {"pid", "embedded", "probe_port"}


@command(
    example="run_worker.py start -n 4 --customq all\n  run_worker.py start -n 2 -c instance --customq sms,email --slots 4 --max-jobs 10000"
)
@click.option("-n", "--num-workers", type=click.IntRange(1, 256), default=1, metavar="N", help="Workers.  [default: 1]")
@click.option("--name", metavar="NAME", help="Their name; the second is NAME.1.  [default: host.pid]")
@click.option("--pid", metavar="FILE", help="Write the supervisor's process id to FILE while it runs.")
@click.option("--no-scheduler", is_flag=True, help="No scheduler beside the workers.")
@setting_flags(START)
@shared_options
def start(
    cli: Cli,
    num_workers: int,
    name: str | None,
    pid: str | None,
    embedded: bool,
    no_scheduler: bool,
    **given: Any,
) -> None:
    """Run several workers and a scheduler unattended: what dies is replaced.

    It takes the flags of `worker` and passes them to each worker. Jobs of a dead worker go back to their queues at once.

    INT or TERM ends all when their jobs are done, or after --shutdown-timeout; a second signal, or QUIT, ends them at once. HUP replaces one
    after the other, each once its successor is ready.
    """
    context = click.get_current_context()
    not_for_others = {*_NOT_HANDED_ON, *own_flags(SCHEDULER, RELAY)}
    planning = as_typed(context, scheduler, not_for_others)
    telling = as_typed(context, relay, not_for_others)
    own = given_settings(START, given)
    plan = prepare(cli, embedded, own, name=name, **given)
    hand_on_url(cli.url)
    workers = [("worker", as_typed(context, worker, _NOT_HANDED_ON))]
    if len(plan.by_executor) > 1:
        workers = list(_by_executor(plan, _NOT_HANDED_ON))
    if plan.settings.probe_port is not None:
        # the port belongs to the supervisor; each worker gets a free port
        workers = [(kind, ["--probe-port", "0", *flags]) for kind, flags in workers]
        planning, telling = (["--probe-port", "0", *each] for each in (planning, telling))
    task_modules(plan.settings.tasks)  # report a wrong flag here once, not in each worker

    from fusion.kernel.linux import close_to_others
    from fusion.runtime.signals import Signals
    from fusion.store.client.connections import connect
    from fusion.store.write.broker import Broker
    from fusion.supervisor.supervisor import Supervisor

    settings = plan.settings
    connection = connect(settings, role="worker")
    Signals.ends_process = True
    if not settings.debuggable:
        close_to_others()
    titles.show("keeps", num_workers, "workers of", ",".join(plan.queues))
    with pid_file(pid):
        kinds = [Kind(kind, ("worker", *flags), num_workers) for kind, flags in workers]
        if not (no_scheduler or plan.burst):
            kinds.append(Kind("scheduler", ("scheduler", *planning)))
        if settings.sinks and plan.relay and not plan.burst:
            # one relay for all: the workers see that the sinks are served and start none of their own
            kinds.append(Kind("relay", ("relay", *telling)))
        code = Supervisor(settings, Broker.of(connection, settings), kinds, program()).run()
    connection.close()
    sys.exit(code)


def _by_executor(plan: WorkerFlags, own: Collection[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield a name and the flags for the workers of each executor, without the supervisor's `own` flags."""
    context = click.get_current_context()
    for kind, queues in plan.by_executor.items():
        flags = as_typed(context, worker, {*own, "executor", "queues", "customq", *executors.unknown_to(kind)})
        served = ["--", *queues] if context.params["queues"] else ["--customq", ",".join(queues)]
        yield f"{kind} worker", [*flags, "--executor", kind, *served]


# Flags that were checked for one worker are valid for all.
start.params += [param for param in worker.params if param.name not in {"reload", *(own.name for own in start.params)}]
