"""`worker`, `worker-pool` and `cron`."""

from __future__ import annotations

import importlib
import logging
import logging.config
import os
from collections.abc import Callable
from typing import Any

import click

from fusion.rq.cli.setup import Setup, check, imported, with_setup
from fusion.rq.defaults import DEFAULT_LOGGING_DATE_FORMAT, DEFAULT_LOGGING_FORMAT
from fusion.rq.logutils import setup_loghandlers
from fusion.store.client.connections import get_current_connection

_ORDERS = ("default", "random", "round_robin")


def _of_workers(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags of `worker` and `worker-pool`."""
    for option in (
        click.option("--date-format", default=DEFAULT_LOGGING_DATE_FORMAT, help="Format of dates in the log."),
        click.option("--log-format", default=DEFAULT_LOGGING_FORMAT, help="Format of lines in the log."),
        click.option("--exception-handler", multiple=True, help="Path of a function that is called when a job fails."),
        click.option("--quiet", "-q", is_flag=True, help="Show less."),
        click.option("--verbose", "-v", is_flag=True, help="Show more."),
        click.option("--burst", "-b", is_flag=True, help="End when the queues are empty."),
        click.argument("queues", nargs=-1),
    ):
        command = option(command)
    return command


def _level(verbose: bool, quiet: bool, level: str | None) -> str | None:
    if verbose and quiet:
        raise click.UsageError("--verbose and --quiet exclude one another")
    return "DEBUG" if verbose else "WARNING" if quiet else level


def _log(setup: Setup, level: str | None, date_format: str, log_format: str) -> None:
    if setup.module.get("DICT_CONFIG"):
        logging.config.dictConfig(setup.module["DICT_CONFIG"])
    setup_loghandlers(level, date_format=date_format, log_format=log_format)


def _refuse_suspended() -> None:
    if importlib.import_module("fusion.rq.suspension").is_suspended(get_current_connection()):
        click.secho('RQ is currently suspended, to resume job execution run "rq resume"', fg="red")
        raise SystemExit(1)


@click.command()
@click.option("--logging-level", "--logging_level", default=None, help="Level of the log.")
@click.option("--name", "-n", help="Name of the worker.")
@click.option("--results-ttl", type=int, hidden=True)
@click.option("--worker-ttl", type=int, default=420, help="Seconds after which a worker that shows no sign of life is dead.")
@click.option("--maintenance-interval", type=int, hidden=True)
@click.option("--job-monitoring-interval", type=int, hidden=True)
@click.option("--disable-job-desc-logging", is_flag=True, help="Leave jobs' descriptions out of the log.")
@click.option("--pid", help="Write the process id to this file.")
@click.option("--disable-default-exception-handler", "-d", is_flag=True, hidden=True)
@click.option("--max-jobs", type=int, help="End after this many jobs.")
@click.option("--max-idle-time", type=int, help="End after this many seconds without a job.")
@click.option("--with-scheduler", "-s", is_flag=True, help="Not needed: every worker enqueues what is due.")
@click.option("--dequeue-strategy", "-ds", default="default", help="default (as listed), round_robin or random.")
@_of_workers
@with_setup
def worker(
    setup: Setup,
    queues: tuple[str, ...],
    burst: bool,
    logging_level: str | None,
    name: str | None,
    results_ttl: int | None,
    worker_ttl: int,
    maintenance_interval: int | None,
    job_monitoring_interval: int | None,
    disable_job_desc_logging: bool,
    verbose: bool,
    quiet: bool,
    exception_handler: tuple[str, ...],
    pid: str | None,
    disable_default_exception_handler: bool,
    max_jobs: int | None,
    max_idle_time: int | None,
    with_scheduler: bool,
    dequeue_strategy: str,
    log_format: str,
    date_format: str,
) -> None:
    """Run the jobs of these queues, in the order in which they are given."""
    if dequeue_strategy not in _ORDERS:
        click.secho("ERROR: Dequeue Strategy can only be one of `default`, `random` or `round_robin`.", err=True, fg="red")
        raise SystemExit(1)
    check("results_ttl", results_ttl not in (None, 500))
    check("disable_default_exception_handler", disable_default_exception_handler)
    check("maintenance_interval", maintenance_interval)
    check("job_monitoring_interval", job_monitoring_interval)
    check("with_scheduler", with_scheduler)
    level = _level(verbose, quiet, logging_level)
    if pid:
        with open(os.path.expanduser(pid), "w") as out:
            out.write(str(os.getpid()))
    _refuse_suspended()
    _log(setup, level, date_format, log_format)
    made = setup.worker_class(
        [setup.queue(queue) for queue in queues or setup.module.get("QUEUES") or ["default"]],
        name=name or setup.module.get("NAME"),
        connection=get_current_connection(),
        worker_ttl=worker_ttl,
        job_class=setup.job_class,
        queue_class=setup.queue_class,
        exception_handlers=[imported(path, "--exception-handler") for path in exception_handler] or None,
        log_job_description=not disable_job_desc_logging,
        serializer=setup.serializer,
    )
    made.work(
        burst=burst,
        logging_level=level,
        date_format=date_format,
        log_format=log_format,
        max_jobs=max_jobs,
        max_idle_time=max_idle_time,
        dequeue_strategy=dequeue_strategy,
    )


@click.command("worker-pool")
@click.option("--logging-level", "-l", default="INFO", help="Level of the log.")
@click.option("--num-workers", "-n", type=int, default=1, help="How many workers.")
@_of_workers
@with_setup
def worker_pool(
    setup: Setup,
    queues: tuple[str, ...],
    burst: bool,
    logging_level: str,
    exception_handler: tuple[str, ...],
    verbose: bool,
    quiet: bool,
    log_format: str,
    date_format: str,
    num_workers: int,
) -> None:
    """Run several workers of these queues."""
    level = _level(verbose, quiet, logging_level)
    pool = importlib.import_module("fusion.rq.worker_pool").WorkerPool
    _refuse_suspended()
    _log(setup, level, date_format, log_format)
    pool(
        [setup.queue(queue) for queue in queues or setup.module.get("QUEUES") or ["default"]],
        connection=get_current_connection(),
        num_workers=num_workers,
        worker_class=setup.worker_class,
        serializer=setup.serializer,
        exception_handlers=[imported(path, "--exception-handler") for path in exception_handler] or None,
        **{
            name: value
            for name, value in (("job_class", setup.job_class), ("queue_class", setup.queue_class))
            if value is not None
        },
    ).start(burst=burst, logging_level=level)


@click.command()
@click.option("--logging-level", "-l", default="INFO", help="Level of the log.")
@click.argument("config_path")
@with_setup
def cron(setup: Setup, logging_level: str, config_path: str) -> None:
    """Run the cron jobs that a file or module registers."""
    from fusion.rq.cron import CronScheduler  # frq needs it here alone

    if setup.module.get("DICT_CONFIG"):
        logging.config.dictConfig(setup.module["DICT_CONFIG"])
    scheduler = CronScheduler(connection=get_current_connection(), logging_level=logging_level)
    scheduler.load_config_from_file(config_path)
    scheduler.start()
