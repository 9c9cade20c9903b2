"""`worker`: from flags to a running worker."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
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
from fusion.exceptions import ConfigurationError
from fusion.kernel import defaults, titles
from fusion.store.embedded.own_files import read_own, reason, write_own
from fusion.store.layout.names import is_pattern

if TYPE_CHECKING:
    from fusion.settings import Settings


#: Flags that are settings of the same name.
_SETTINGS = (
    *(
        "name",
        "slots",
        "horses",
        "threads",
        "concurrency",
        "neighbour_grace",
        "max_jobs_per_horse",
        "max_horse_rss",
        "claim_ahead",
        "preload",
        "lease",
        "worker_ttl",
        "maintenance_interval",
        "reap_interval",
    ),
    *("reserve_high", "max_job_memory", "memory_throttle", "probe_port", "probe_host", "log_json"),
    *("max_jobs", "max_idle_time", "max_age", "max_memory"),
)


#: Of the flags that a relay has too, those that are the worker's own.
_NOT_FOR_RELAY = {"name", "pid", "embedded", "probe_port", "probe_host"}


#: Those that --reload has done for the worker that it starts.
_NOT_FOR_RELOADED = {"reload", "pid", "embedded"}
#: Of the worker's flags, those that the worker for its jobs on probation does without.
_NOT_FOR_PROBATION = {
    *(*_NOT_FOR_RELAY, "burst", "slots", "executor", "horses", "threads", "concurrency", "reserve_high", "no_relay", "probation"),
}
#: Seconds without a job after which that one ends.
_IDLE_PROBATION = 5.0


@dataclass(frozen=True)
class WorkerPlan:
    """A worker as the flags ask for it. `job_lines`: log the description of each job. `probation`: run only jobs that are to run alone.
    `by_executor`: its queues by what their jobs run in; for more than one `start` makes workers for each."""

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
    click.option("-n", "--name", metavar="NAME", help="Its name.  [default: host.pid]"),
    click.option("--slots", metavar="N", help="Jobs it runs at a time.  [default: 1]"),
    click.option(
        "--executor",
        multiple=True,
        metavar="[QUEUE=]NAME",
        help="What jobs run in, or those of QUEUE: process, one each; pool, warm ones, one job after another; thread or asyncio, many jobs at "
        "once in one. Repeatable.  [default: process; with --horses pool]",
    ),
    click.option(
        "--horses",
        metavar="N|auto",
        help="Warm processes that run one job after another, in place of one process per job. "
        "A task can read the arguments of jobs that wait in its process.",
    ),
    click.option("--threads", metavar="N", help=f"Jobs that a process of thread runs at once.  [default: {defaults.THREADS}]"),
    click.option(
        "--concurrency", metavar="N", help=f"Jobs that a process of asyncio runs at once.  [default: {defaults.CONCURRENCY}]"
    ),
    click.option(
        "--neighbour-grace",
        metavar="SECONDS",
        help=f"How long jobs go on whose process is killed for another in it.  [default: {defaults.NEIGHBOUR_GRACE:g}]",
    ),
    click.option(
        "--max-jobs-per-horse",
        metavar="N",
        help=f"A warm process ends after N jobs for each it runs at once; 0: never.  [default: {defaults.MAX_JOBS_PER_HORSE}]",
    ),
    click.option("--max-horse-rss", metavar="SIZE", help="... or after a job that took more memory at its peak, like 200m."),
    click.option(
        "--claim-ahead", metavar="MS", help=f"Work that may wait in a warm process; 0: none.  [default: {defaults.CLAIM_AHEAD}]"
    ),
    click.option(
        "--order",
        type=click.Choice(["listed", "round-robin"]),
        help="Of queues with jobs of one class: the first named first, or in turns.  [default: listed, if QUEUES names them]",
    ),
    click.option("--reserve-high", metavar="N", help="Slots kept free for HIGH jobs.  [default: 0]"),
    click.option(
        "--tasks", multiple=True, metavar="MODULE", help="Also run functions of MODULE and below; '*' for any. Repeatable."
    ),
    click.option(
        "--preload", type=click.Choice(["auto", "strict", "off"]), help="Import task modules once, before the jobs come."
    ),
    click.option(
        "-S", "--serializer", type=click.Choice(["json", "pickle"]), help="pickle: run RQ's jobs too; trust your producers."
    ),
    click.option(
        "--adopt-rq", multiple=True, metavar="QUEUE", help="Run what stock RQ's producers enqueue to QUEUE, too. Repeatable."
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
    click.option("--max-jobs", metavar="N", help="End after N jobs; `start` then starts a fresh one, as for the next three."),
    click.option("--max-idle-time", metavar="SECONDS", help="End after so long without a job."),
    click.option("--max-job-memory", metavar="MIB", help="Kill a job whose processes hold more than this."),
    click.option(
        "--memory-throttle",
        is_flag=True,
        default=None,
        help="Take no jobs while memory is scarce (MEMORY_THROTTLE_THRESHOLD ...).",
    ),
    click.option("--probe-port", metavar="PORT", help="Answer /livez and /readyz there; 0 for any port."),
    click.option("--probe-host", metavar="HOST", help=f"At which address.  [default: {defaults.PROBE_HOST}]"),
    click.option("--max-age", metavar="SECONDS", help="End after so long; up to a tenth less, so that not all end at once."),
    click.option("--max-memory", metavar="MIB", help="End when it and its fork server, jobs apart, use more."),
    click.option("--embedded", is_flag=True, help="Use the built-in Redis; start it unless it runs."),
    click.option("--no-relay", is_flag=True, help="Leave events and callbacks to others, even if nobody delivers them."),
    click.option("--probation", is_flag=True, hidden=True),
    PID,
    click.option("--reload", is_flag=True, help="For development: start afresh, its jobs done, when code of the tasks changes."),
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

    INT or TERM ends it when its jobs are done, twice at once; jobs that are cut off go back to their place.
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

    hand_on_url(cli.url)  # to its jobs as well: a task that enqueues means the same Redis
    without_embedded_worker()
    relay, probation = _relay() if plan.relay else [], [] if plan.probation else _probation()
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


def _reloading(cli: Cli, plan: WorkerPlan) -> int:
    """Run this command line in a child, and again when its code changes; the exit code of the last one."""
    from fusion.runtime.signals import Signals
    from fusion.supervisor.reloader import Reloader
    from fusion.supervisor.sources import Sources

    hand_on_url(cli.url)
    context = click.get_current_context()
    sources = Sources(plan.settings.tasks, context.params["path"], cli.config_files())
    Signals.ends_process = True
    titles.show("starts a worker afresh when code changes")
    command = [*program(), "worker", *as_typed(context, context.command, _NOT_FOR_RELOADED)]
    return Reloader(command, sources, plan.settings.shutdown_timeout).run()


def _relay() -> list[str]:
    """The command line of a relay with this worker's settings."""
    context = click.get_current_context()
    root = context.find_root()
    relay = root.command.get_command(root, "relay") if isinstance(root.command, click.Group) else None
    typed = as_typed(context, relay, _NOT_FOR_RELAY) if relay else []
    return [*program(), "relay", *typed]


def _probation() -> list[str]:
    """The command line of the worker that runs this one's jobs on probation."""
    context = click.get_current_context()
    return [*program(), "worker", "--probation", "--no-relay", *as_typed(context, context.command, _NOT_FOR_PROBATION)]


def prepare(cli: Cli, embedded: bool, **given: Any) -> WorkerPlan:
    """Everything before a worker, or the supervisor of some, is made: flags checked, built-in Redis started, logging set up."""
    level = level_of(cli, given)
    if embedded:
        cli.url = start_embedded(cli)
    plan = plan_worker(cli, **given)
    set_up_logging(plan.settings, level, given["log_format"], given["date_format"])
    return plan


def plan_worker(
    cli: Cli,
    *,
    queues: tuple[str, ...],
    customq: tuple[str, ...],
    burst: bool,
    tasks: tuple[str, ...],
    adopt_rq: tuple[str, ...],
    serializer: str | None,
    results_ttl: str | None,
    disable_job_desc_logging: bool,
    no_relay: bool,
    probation: bool,
    **given: Any,
) -> WorkerPlan:
    """Settings and queues, checked. Usage errors name the flag, configuration errors the module or variable."""
    flags = {name: given[name] for name in _SETTINGS}
    flags |= {"result_ttl": results_ttl, "serializer": serializer, "shutdown_timeout": given.get("shutdown_timeout")}
    if serializer == "pickle":
        flags["allow_pickle"] = True
    if tasks:
        flags["more_tasks"] = tuple(names.split(tasks))
    if adopt_rq:
        flags["adopt_rq"] = tuple(names.check(name) for name in names.split(adopt_rq))
    flags["order"] = given["order"]
    executor = executors.read(given["executor"])
    flags["executor"] = executor.all
    flags = executors.of_some(executor, flags)
    settings = cli.load(**flags)
    typed = [*queues, *names.split(customq)]
    if not typed:
        if customq:
            raise click.UsageError("--customq names no queue; use --customq sms, or --customq all")
        typed = [defaults.QUEUE] if settings.origin_of("queues") == "default" else list(settings.queues)
    served = names.expand_all(typed, settings.queues)
    # By its name: of a queue in the index of a wildcard everybody's workers say whether there is work.
    served += tuple(q for q in settings.adopt_rq or () if q not in served and any(fnmatchcase(q, name) for name in served))
    by_executor = executors.groups(executor, settings, served)
    if [*by_executor] != [settings.executor]:  # what was said for queues is right for each of their workers, too
        given_sizes = {**flags, **{name: given[name] for name in executors.OF_SIZE}}
        checked = [cli.load(**executors.fitting(kind, given_sizes)) for kind in by_executor]
        if len(checked) == 1:
            settings, flags = checked[0], executors.fitting(next(iter(by_executor)), given_sizes)
    if queues and not customq and settings.origin_of("order") == "default" and not any(map(is_pattern, served)):
        settings = cli.load(**{**flags, "order": "listed"})  # RQ's form, and what it means there
    if not probation:
        executors.check_interpreter(by_executor)
    else:
        settings = replace(
            settings,
            name=None,
            slots=1,
            executor="process",
            horses=None,
            threads=None,
            concurrency=None,
            reserve_high=0,
            probe_port=None,
        )
        settings = replace(settings, max_jobs=None, max_age=None, max_idle_time=_IDLE_PROBATION)
    return WorkerPlan(settings, served, burst, not disable_job_desc_logging, not no_relay, probation, by_executor)


def level_of(cli: Cli, given: dict[str, Any]) -> str | None:
    """The log level that --logging-level, --verbose and --quiet ask for. A usage error if two of them contradict."""
    level, quiet = given.pop("logging_level"), given.pop("quiet")
    if cli.verbose and quiet:
        raise click.UsageError("--verbose and --quiet exclude each other")
    return "DEBUG" if cli.verbose else "WARNING" if quiet else level


def start_embedded(cli: Cli) -> str:
    """The url of the built-in Redis, started if need be."""
    if cli.url:
        raise click.UsageError("--embedded and --url name two Redis; give one of them")
    from fusion.store.embedded.instance import EmbeddedRedis

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
        raise ConfigurationError(f"--pid {path!r} can't be written: {reason(error)}, or choose another file") from None
    try:
        yield
    finally:
        try:
            # A worker that was started meanwhile may have written its own.
            if read_own(path) == own:
                os.unlink(path)
        except OSError:  # somebody removed it
            pass
