"""`worker`: start a worker from its flags."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import click

from fusion.cli import executors, names
from fusion.cli.child_flags import as_typed, hand_on_url, program, without_embedded_worker
from fusion.cli.context import Cli, shared_options
from fusion.cli.context import prog as program_name
from fusion.cli.hints import command
from fusion.cli.logs import LOGGING, PID, QUIET, set_up_logging
from fusion.cli.output import echo
from fusion.cli.setting_flags import given_settings, own_flags, setting_flags
from fusion.exceptions import ConfigurationError
from fusion.kernel import defaults, titles
from fusion.settings.flags import RELAY, WORKER
from fusion.store.layout.names import is_pattern
from fusion.store.redis_server.own_files import read_own, reason, write_own

if TYPE_CHECKING:
    from fusion.settings import Settings


#: Flags other than settings that concern only this process.
_OWN = {"pid", "embedded"}
#: Flags that --reload handles itself for the worker that it starts.
_NOT_FOR_RELOADED = {"reload", *_OWN}
#: The settings of the worker for jobs on probation, which override those of its parent. It ends after some seconds without a job.
_PROBATION: dict[str, Any] = {
    **dict.fromkeys(("name", "horses", "threads", "concurrency", "probe_port", "max_jobs", "max_age")),
    "slots": 1,
    "executor": "process",
    "reserve_high": 0,
    "max_idle_time": 5.0,
}


@dataclass(frozen=True)
class WorkerFlags:
    """A worker as its flags describe it. `job_lines`: log the description of each job. `probation`: run only jobs that must run alone.
    `by_executor`: its queues by executor; with more than one, `start` makes workers for each."""

    settings: Settings
    queues: tuple[str, ...]
    burst: bool
    job_lines: bool
    relay: bool
    probation: bool
    by_executor: dict[str, list[str]]


_RUNNING = (
    click.option("--customq", multiple=True, metavar="NAMES", help="More queues, with commas between them; repeatable."),
    click.option("-b", "--burst", is_flag=True, help="End when the queues are empty."),
    setting_flags(WORKER),
    click.option("--embedded", is_flag=True, help="Use the built-in Redis; start it unless it runs."),
    click.option("--no-relay", is_flag=True, help="Never start a relay, even if no other process delivers events and callbacks."),
    click.option("--probation", is_flag=True, hidden=True),
    PID,
    click.option(
        "--reload", is_flag=True, help="For development: restart, after its jobs are done, when the tasks' code changes."
    ),
)
_LOGGING = (
    *LOGGING,
    click.option("--disable-job-desc-logging", is_flag=True, help="Leave the jobs' descriptions out of the log."),
    QUIET,
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
def worker(cli: Cli, embedded: bool, pid: str | None, reload: bool, **given: Any) -> None:
    """Run jobs of these queues, each in a process of its own.

    QUEUES and --customq are taken together. A name may be a wildcard ('sms*', '*': quote it); `all` stands for the configured
    queues and every other that is known. With none named: QUEUES of the -c module or FUSION_QUEUES, else `default`.

    The highest class of jobs in any of the queues goes first: a HIGH job of the last queue before a LOW one of the first. --order is for
    jobs of one class: names given as arguments are served in that order, as RQ does; --customq, wildcards, `all` and those of the settings
    take turns.

    INT or TERM ends it when its jobs are done, a second one at once; jobs that are cut off go back to their place.
    """
    plan = prepare(cli, embedded, **given)
    if len(plan.by_executor) > 1 and not plan.probation:
        several = "; ".join(f"{kind} for {', '.join(names)}" for kind, names in plan.by_executor.items())
        raise click.UsageError(
            f"a worker has one executor, and this one would need {several}: `start` in its place runs workers for each"
        )
    if reload:
        with pid_file(pid):
            sys.exit(_reloading(cli, plan))
    from fusion.forkserver.orphans import adopt
    from fusion.kernel.linux import close_to_others
    from fusion.runtime.signals import Signals
    from fusion.worker.parts import SideProcesses
    from fusion.worker.worker import Worker

    hand_on_url(cli.url)  # also for its jobs: a task that enqueues must use the same Redis
    without_embedded_worker()
    relay, probation = relay_command() if plan.relay else [], [] if plan.probation else _probation()
    Signals.ends_process = True
    adopt()
    if not plan.settings.debuggable:
        close_to_others()
    titles.show("worker", plan.settings.name or "", "of", ",".join(plan.queues))
    with pid_file(pid):
        code = Worker(
            plan.settings,
            plan.queues,
            burst=plan.burst,
            job_lines=plan.job_lines,
            side_processes=SideProcesses(relay, probation, only_probation=plan.probation),
        ).run()
    sys.exit(code)


def _reloading(cli: Cli, plan: WorkerFlags) -> int:
    """Run this command line in a child, again whenever the code changes; return the exit code of the last run."""
    from fusion.runtime.signals import Signals
    from fusion.supervisor.reloader import Reloader
    from fusion.supervisor.sources import WatchedFiles

    hand_on_url(cli.url)
    context = click.get_current_context()
    sources = WatchedFiles(plan.settings.tasks, context.params["path"], cli.config_files())
    Signals.ends_process = True
    titles.show("starts a worker afresh when code changes")
    command = [*program(), "worker", *as_typed(context, context.command, _NOT_FOR_RELOADED)]
    return Reloader(command, sources, plan.settings.shutdown_timeout).run()


def relay_command() -> list[str]:
    """Return the command line of a relay with the settings of this command."""
    context = click.get_current_context()
    root = context.find_root()
    relay = root.command.get_command(root, "relay") if isinstance(root.command, click.Group) else None
    typed = as_typed(context, relay, {*_OWN, *own_flags(RELAY)}) if relay else []
    return [*program(), "relay", *typed]


def _probation() -> list[str]:
    """Return the command line of the worker that runs this worker's jobs on probation."""
    context = click.get_current_context()
    without = {*_OWN, *_PROBATION, *own_flags(WORKER), "burst", "no_relay", "probation"}
    return [*program(), "worker", "--probation", "--no-relay", *as_typed(context, context.command, without)]


def prepare(cli: Cli, embedded: bool, more: Mapping[str, Any] | None = None, **given: Any) -> WorkerFlags:
    """Prepare a worker, or a supervisor of workers: check flags, start the built-in Redis, set up logging. `more`: further settings than those of
    a worker's flags."""
    level = level_of(cli, given)
    if embedded:
        cli.url = start_embedded(cli)
    log_format, date_format = given.pop("log_format"), given.pop("date_format")
    plan = plan_worker(cli, more=more, **given)
    set_up_logging(plan.settings, level, log_format, date_format)
    return plan


def plan_worker(
    cli: Cli,
    *,
    queues: tuple[str, ...],
    customq: tuple[str, ...],
    burst: bool,
    executor: tuple[str, ...],
    disable_job_desc_logging: bool,
    no_relay: bool,
    probation: bool,
    more: Mapping[str, Any] | None = None,
    **given: Any,
) -> WorkerFlags:
    """Check and return settings and queues. Usage errors name the flag, configuration errors the module or variable."""
    flags = {**given_settings(WORKER, given), **(more or {})}
    for name in flags["adopt_rq"] or ():
        names.check(name)
    if flags["serializer"] == "pickle":
        flags["allow_pickle"] = True
    sizes = {name: flags[name] for name in executors.OF_SIZE}
    typed_executor = executors.read(executor)
    flags["executor"] = typed_executor.all
    flags = executors.of_some(typed_executor, flags)
    settings = cli.load(**flags)
    typed = [*queues, *names.split(customq)]
    if not typed:
        if customq:
            raise click.UsageError("--customq names no queue; use --customq sms, or --customq all")
        typed = [defaults.QUEUE] if settings.origin_of("queues") == "default" else list(settings.queues)
    served = names.expand_all(typed, settings.queues)
    # By its exact name: in the index that wildcards use, workers that do not adopt the queue also record whether it has work.
    served += tuple(q for q in settings.adopt_rq or () if q not in served and any(fnmatchcase(q, name) for name in served))
    if flags.get("weights") and settings.order != "weighted":
        raise click.UsageError("--weight is for --order weighted; give both")
    by_executor = executors.groups(typed_executor, settings, served)
    if [*by_executor] != [settings.executor]:  # flags for queues are valid for each of their workers too
        given_sizes = {**flags, **sizes}
        checked = [cli.load(**executors.fitting(kind, given_sizes)) for kind in by_executor]
        if len(checked) == 1:
            settings, flags = checked[0], executors.fitting(next(iter(by_executor)), given_sizes)
    if queues and not customq and settings.origin_of("order") == "default" and not any(map(is_pattern, served)):
        settings = cli.load(**{**flags, "order": "listed"})  # RQ's form, with RQ's meaning
    if not probation:
        executors.check_interpreter(by_executor)
    else:
        settings = replace(settings, **_PROBATION)
    return WorkerFlags(settings, served, burst, not disable_job_desc_logging, not no_relay, probation, by_executor)


def level_of(cli: Cli, given: dict[str, Any]) -> str | None:
    """Return the log level of --logging-level, --verbose and --quiet. A usage error if they contradict each other."""
    level, quiet = given.pop("logging_level"), given.pop("quiet")
    if cli.verbose and quiet:
        raise click.UsageError("--verbose and --quiet exclude each other")
    return "DEBUG" if cli.verbose else "WARNING" if quiet else level


def start_embedded(cli: Cli) -> str:
    """Start the built-in Redis unless it runs; return its url."""
    if cli.url:
        raise click.UsageError("--embedded and --url name two Redis; give one of them")
    from fusion.store.redis_server.instance import EmbeddedRedis

    server = EmbeddedRedis(cli.load().home)
    url = server.start()
    echo(f"Built-in Redis at {url}; it goes on when this process ends ({program_name()} redis stop)", err=True)
    return url


@contextmanager
def pid_file(path: str | None) -> Iterator[None]:
    """Keep this process's id in the file while the block runs. ConfigurationError if it can't be written."""
    if path is None:
        yield
        return
    path, own = os.path.expanduser(path), str(os.getpid())
    try:
        write_own(path, own, 0o644)
    except OSError as error:
        raise ConfigurationError(
            f"--pid {path!r} can't be written: {reason(error)}, or choose another file", code="FUS-219"
        ) from None
    try:
        yield
    finally:
        try:
            # A worker that was started meanwhile may have written its own id.
            if read_own(path) == own:
                os.unlink(path)
        except OSError:  # the file was removed meanwhile
            pass
