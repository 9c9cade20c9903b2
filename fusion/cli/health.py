"""`health`: a probe for containers that can run a command but not open a port."""

from __future__ import annotations

import json
import socket
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from fusion.cli.arguments import FiniteRange
from fusion.cli.context import Cli, seconds, shared_options
from fusion.cli.hints import command
from fusion.cli.output import echo

if TYPE_CHECKING:
    from fusion.store.read.inspector import WorkerInfo

#: Exit code of a check that failed; 1 means that the check could not be made.
UNHEALTHY = 3


@command(example="run_worker.py health\n  run_worker.py health --worker web1.4711 --max-age 30")
@click.option("--worker", "name", metavar="NAME", help="This worker, wherever it runs.  [default: any on this host]")
@click.option("--max-age", type=FiniteRange(min=0), default=60, metavar="SECONDS", help="Of its last heartbeat.  [default: 60]")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@shared_options
def health(cli: Cli, name: str | None, max_age: float, as_json: bool) -> None:
    """Check that a worker is alive and has loaded its tasks.

    It reads the worker's heartbeat in Redis: use it as a readiness or start-up probe. As a liveness probe it would restart workers whenever
    Redis is down; use /livez of --probe-port there. Exit code 0: it is healthy; 3: it is not; 1: unknown, since Redis does not answer.
    """
    from fusion.store.client.server import read_server

    host = socket.gethostname()
    workers = [
        worker
        for worker in cli.onlooker.workers([name] if name else None)
        if (worker.name == name if name else worker.hostname == host and not worker.is_courier)
    ]
    wrong = {worker.name: f"can't load tasks: {worker.unloaded}" for worker in workers if worker.unloaded}
    wrong |= {w.name: f"silent for {seconds(w.silent)}, more than {max_age:g} s" for w in workers if w.silent > max_age}
    healthy = len(wrong) < len(workers)
    unsaved = read_server(cli.connection).unsaved
    if workers:
        reasons = [] if healthy else [f"{worker}: {why}" for worker, why in wrong.items()]
    else:
        reasons = [
            f"no worker {name} is registered" if name else f"no worker of this host ({host}) is registered",
            *_too_old(cli),
        ]
    advice = _advice(cli)
    broken = cli.broken()
    if not workers and broken:  # there may be some nevertheless
        reasons = broken
    if as_json:
        document = {
            "schema": 1,
            "status": "ok" if healthy else "error",
            "reasons": reasons,
            "workers": [_worker(w, max_age) for w in workers],
            "unsaved": unsaved,
            "advice": advice,
        }
        echo(json.dumps(document))
    elif healthy:
        echo("\n".join(f"{worker.name}: alive, {_state(worker, max_age)}" for worker in workers if worker.name not in wrong))
    else:
        echo("\n".join(reasons), err=True)
    if not as_json:
        for line in advice:
            echo(line, err=True)
    if unsaved:
        echo("Redis can't save its data and may refuse to write: check its log and the space on its disk", err=True)
    sys.exit(1 if broken and not workers else 0 if healthy else UNHEALTHY)


def _advice(cli: Cli) -> list[str]:
    """Return sentences about things that work but should be changed."""
    from redis.exceptions import ResponseError

    from fusion.store.read.callback_inspector import CallbackInspector

    try:
        hosts = CallbackInspector(cli.looking, prefix=cli.settings.prefix).unsigned()
    except ResponseError:  # a key of another type
        return []
    if not hosts:
        return []
    shown = ", ".join(hosts[:3]) + (f" and {len(hosts) - 3} more" if len(hosts) > 3 else "")
    told = f"callbacks to {shown} go out without a signature, so that anybody could have sent them: "
    return [told + "set callback_secrets where relays run, and callback_require_signatures (docs/callbacks.md)"]


def _too_old(cli: Cli) -> list[str]:
    """Return sentences about workers too old for the data, which are alive but not registered."""
    from fusion.exceptions import SchemaMismatch
    from fusion.store.access import schema_broker_of

    try:
        schema_broker_of(cli.connection).stored().check_reader()
    except SchemaMismatch as error:
        return [str(error)]
    return []


def _worker(worker: WorkerInfo, max_age: float) -> dict[str, object]:
    alive = worker.silent <= max_age
    return {"name": worker.name, "alive": alive, "state": _state(worker, max_age), "heartbeat_age": round(worker.silent, 3)}


def _state(worker: WorkerInfo, max_age: float) -> str:
    """Return the worker's usual state, but `dead` by the given age."""
    from fusion.views.worker import state_of

    return state_of(replace(worker, alive=worker.silent <= max_age))
