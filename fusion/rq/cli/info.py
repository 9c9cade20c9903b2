"""`info`."""

from __future__ import annotations

import shutil
import time
from datetime import datetime
from typing import Any

import click

from fusion.rq.cli.setup import Setup, with_setup
from fusion.store.client.connections import get_current_connection

_STYLES = {"busy": "red", "idle": "green", "suspended": "yellow"}


@click.command()
@click.option("--interval", "-i", type=float, help="Seconds between two looks; none: once.")
@click.option("--raw", "-r", is_flag=True, help="Numbers alone.")
@click.option("--only-queues", "-Q", is_flag=True, help="Only queues.")
@click.option("--only-workers", "-W", is_flag=True, help="Only workers.")
@click.option("--by-queue", "-R", is_flag=True, help="Workers by queue.")
@click.argument("queues", nargs=-1)
@with_setup
def info(
    setup: Setup,
    queues: tuple[str, ...],
    interval: float | None,
    raw: bool,
    only_queues: bool,
    only_workers: bool,
    by_queue: bool,
) -> None:
    """Show queues and workers."""
    while True:
        if interval:
            click.clear()
        found = setup.queues(queues)
        if not only_workers:
            _show_queues(found, raw)
        if not (only_queues or only_workers or raw):
            click.echo("")
        if not only_queues:
            _show_workers(setup, found, raw, by_queue)
        if not (only_queues or only_workers or raw):
            click.echo(f"\nUpdated: {datetime.now().astimezone():%Y-%m-%d %H:%M:%S.%f}")
        if not interval:
            return
        time.sleep(interval)


def _show_queues(queues: list[Any], raw: bool) -> None:
    counts = [queue.count for queue in queues]
    width = min(20, shutil.get_terminal_size().columns - 20)
    ratio = width / next(
        (scale for scale in (20, 50, 100, 200, 400, 600, 800, 1000) if max(counts, default=0) <= scale), max(counts, default=1)
    )
    for queue, count in zip(queues, counts, strict=True):
        rest = (
            f"{count}, {queue.started_job_registry.count} executing, {queue.finished_job_registry.count} finished, "
            f"{queue.failed_job_registry.count} failed"
        )
        chart = click.style("|" + "█" * int(ratio * count), fg="green")
        click.echo(f"queue {queue.name} {rest}" if raw else f"{queue.name:<12} {chart} {rest}")
    if not raw:
        click.echo(f"{len(queues)} queues, {sum(counts)} jobs total")


def _show_workers(setup: Setup, queues: list[Any], raw: bool, by_queue: bool) -> None:
    living = setup.worker_class.all(connection=get_current_connection())
    names = {queue.name for queue in queues}
    workers = [one for one in living if not names or names & set(one.queue_names())]
    if by_queue:
        longest = max((len(name) for name in names), default=0)
        for queue in queues:
            of_it = sorted(f"{one.name} ({_state(one)})" for one in workers if queue.name in one.queue_names())
            click.echo(f"{queue.name + ':':<{longest + 1}} {', '.join(of_it) or chr(0x2013)}")
    for one in workers if not by_queue else ():
        rest = f"{', '.join(one.queue_names())}. jobs: {one.successful_job_count} finished, {one.failed_job_count} failed"
        where = f"{one.name} ({one.hostname} {getattr(one, 'ip_address', 'unknown')} {one.pid})"
        click.echo(f"worker {where} {one.get_state()} {rest}" if raw else f"{where}: {_state(one)} {rest}")
    if not raw:
        click.echo(f"{len(workers)} workers, {len(queues)} queues")


def _state(one: Any) -> str:
    state = str(one.get_state())
    return click.style(state, fg=_STYLES[state]) if state in _STYLES else state
