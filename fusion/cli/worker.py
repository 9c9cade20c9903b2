"""`worker`: from flags to a running worker."""

from __future__ import annotations

import logging
import logging.config
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from fusion import defaults
from fusion.cli import names
from fusion.cli.context import Cli, shared_options
from fusion.cli.hints import command
from fusion.exceptions import ConfigurationError

if TYPE_CHECKING:
    from fusion.settings import Settings

LOG_FORMAT = "%(asctime)s %(message)s"
DATE_FORMAT = "%H:%M:%S"
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


@dataclass(frozen=True)
class Plan:
    """What the flags ask for."""

    settings: Settings
    queues: tuple[str, ...]
    burst: bool
    job_lines: bool


_RUNNING = (
    click.option("--customq", multiple=True, metavar="NAMES", help="More queues, with commas between them; repeatable."),
    click.option("-b", "--burst", is_flag=True, help="End when the queues are empty."),
    click.option("-n", "--name", metavar="NAME", help="Its name.  [default: host.pid]"),
    click.option("--slots", metavar="N", help="Jobs it runs at a time.  [default: 1]"),
    click.option(
        "--tasks", multiple=True, metavar="MODULE", help="Also run functions of MODULE and below; '*' for any. Repeatable."
    ),
    click.option(
        "--preload", type=click.Choice(["auto", "strict", "off"]), help="Import task modules once, before the jobs come."
    ),
    click.option(
        "-S", "--serializer", type=click.Choice(["json", "pickle"]), help="pickle: run RQ's jobs too; trust your producers."
    ),
    click.option("--results-ttl", metavar="SECONDS", help=f"How long results are kept.  [default: {defaults.RESULT_TTL}]"),
    click.option(
        "--lease", metavar="SECONDS", help=f"A worker silent for so long has lost its jobs.  [default: {defaults.LEASE:g}]"
    ),
    click.option("--worker-ttl", metavar="SECONDS", help=f"How long its entry outlives it.  [default: {defaults.WORKER_TTL}]"),
    click.option(
        "--maintenance-interval", metavar="SECONDS", help=f"Between clean-ups.  [default: {defaults.MAINTENANCE_INTERVAL:g}]"
    ),
    click.option("--reap-interval", metavar="SECONDS", hidden=True),
    click.option("--embedded", is_flag=True, help="Use the built-in Redis; start it unless it runs."),
    click.option("--pid", metavar="FILE", help="Write the process id to FILE while it runs."),
)
_LOGGING = (
    click.option("--logging_level", "--logging-level", type=click.Choice(_LEVELS, case_sensitive=False), help="[default: INFO]"),
    click.option("--log-format", default=LOG_FORMAT, metavar="FORMAT", help="Of log lines.", show_default=True),
    click.option("--date-format", default=DATE_FORMAT, metavar="FORMAT", help="Of their times.", show_default=True),
    click.option("--disable-job-desc-logging", is_flag=True, help="Leave the jobs' descriptions out of the log."),
    click.option("-q", "--quiet", is_flag=True, help="Only warnings and errors."),
)


def _flags(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed((*_RUNNING, *_LOGGING)):
        function = option(function)
    return function


@command(
    example="run_worker.py worker --customq all\n  run_worker.py worker -c instance --customq sms,email --slots 4\n"
    "  run_worker.py worker 'sms*' --burst"
)
@click.argument("queues", nargs=-1, metavar="[QUEUES]...")
@_flags
@shared_options
def worker(cli: Cli, embedded: bool, pid: str | None, **given: Any) -> None:
    """Run jobs of these queues, each in a process of its own.

    QUEUES and --customq are taken together. A name may be a wildcard ('sms*', '*': quote it); `all` stands for the configured
    queues and every other that is known. With none named: QUEUES of the -c module or FUSION_QUEUES, else `default`.

    INT or TERM ends it when its jobs are done, twice at once; jobs that are cut off go back to their place.
    """
    level = _level(cli, given)
    if embedded:
        if cli.url:
            raise click.UsageError("--embedded and --url name two Redis; give one of them")
        cli.url = _start_embedded(cli)
    plan = plan_worker(cli, **given)
    set_up_logging(plan.settings, level, given["log_format"], given["date_format"])
    from fusion.process.worker import Worker

    with _pid_file(pid):
        code = Worker(plan.settings, plan.queues, burst=plan.burst, job_lines=plan.job_lines).run()
    sys.exit(code)


def plan_worker(
    cli: Cli,
    *,
    queues: tuple[str, ...],
    customq: tuple[str, ...],
    burst: bool,
    tasks: tuple[str, ...],
    serializer: str | None,
    results_ttl: str | None,
    disable_job_desc_logging: bool,
    **given: Any,
) -> Plan:
    """Settings and queues, checked. Usage errors name the flag, configuration errors the module or variable."""
    flags = {
        name: given[name] for name in ("name", "slots", "preload", "lease", "worker_ttl", "maintenance_interval", "reap_interval")
    }
    flags |= {"result_ttl": results_ttl, "serializer": serializer}
    if serializer == "pickle":
        flags["allow_pickle"] = True
    if tasks:
        flags["tasks"] = (*cli.load().tasks, *names.split(tasks))
    settings = cli.load(**flags)
    typed = [*queues, *names.split(customq)]
    if not typed:
        if customq:
            raise click.UsageError("--customq names no queue; use --customq sms, or --customq all")
        typed = [defaults.QUEUE] if settings.origin_of("queues") == "default" else list(settings.queues)
    return Plan(settings, names.expand_all(typed, settings.queues), burst, not disable_job_desc_logging)


def _level(cli: Cli, given: dict[str, Any]) -> str | None:
    level, quiet = given.pop("logging_level"), given.pop("quiet")
    if cli.verbose and quiet:
        raise click.UsageError("--verbose and --quiet exclude each other")
    return "DEBUG" if cli.verbose else "WARNING" if quiet else level


def _start_embedded(cli: Cli) -> str:
    from fusion.store.embedded import EmbeddedRedis

    server = EmbeddedRedis(cli.load().home)
    url = server.start()
    click.echo(f"Built-in Redis at {url}; it goes on when this worker ends (run_worker.py redis stop)", err=True)
    return url


def set_up_logging(settings: Settings, level: str | None, log_format: str, date_format: str) -> None:
    """DICT_CONFIG of the settings, else lines on stderr; a level from the flags wins over both."""
    if settings.dict_config:
        try:
            logging.config.dictConfig(dict(settings.dict_config))
        except (ValueError, TypeError, AttributeError, ImportError) as error:
            raise ConfigurationError(f"dict_config (from {settings.origin_of('dict_config')}) is not valid: {error}") from error
    logger = logging.getLogger("fusion")
    formatter = _formatter(log_format, date_format)
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(formatter)
        logger.addHandler(handler)
    if level or not settings.dict_config:
        logger.setLevel(level or "INFO")


def _formatter(log_format: str, date_format: str) -> logging.Formatter:
    try:
        formatter = logging.Formatter(log_format, date_format)
        formatter.format(logging.makeLogRecord({}))
    except (ValueError, TypeError) as error:
        raise click.UsageError(f"--log-format {log_format!r}: {error}; use e.g. {LOG_FORMAT!r}") from None
    return formatter


@contextmanager
def _pid_file(path: str | None) -> Iterator[None]:
    if path is None:
        yield
        return
    path, own = os.path.expanduser(path), str(os.getpid())
    try:
        with open(path, "w") as file:
            file.write(own)
    except OSError as error:
        raise ConfigurationError(f"--pid {path!r} can't be written: {error.strerror}; choose another file") from None
    try:
        yield
    finally:
        # A worker that was started meanwhile may have written its own.
        with open(path) as file:
            ours = file.read() == own
        if ours:
            os.unlink(path)
