"""RQ's Worker: a Fusion worker made from a client, which runs in the process that calls `work()`."""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from redis import Redis

from fusion.exceptions import ConfigurationError
from fusion.kernel.timeutil import now
from fusion.rq import defaults
from fusion.rq.connections import given, url_for
from fusion.rq.exception_handlers import VARIABLE, paths_of
from fusion.rq.hints import PAGE, missing, refused
from fusion.rq.logutils import setup_loghandlers
from fusion.rq.queue import Queue
from fusion.rq.scheduler import RQScheduler
from fusion.rq.serializers import resolve_serializer
from fusion.rq.suspension import is_suspended
from fusion.rq.timeouts import UnixSignalDeathPenalty
from fusion.rq.utils import backend_class
from fusion.rq.worker_record import WorkerRecord
from fusion.rq.worker_record import WorkerStatus as WorkerStatus
from fusion.settings import Settings, get_settings, use_settings
from fusion.sidecar import SWITCH
from fusion.worker.in_process import run_here

if TYPE_CHECKING:
    from fusion.rq.core_worker import CoreWorker


log = logging.getLogger("fusion.worker")


class DequeueStrategy(str, Enum):
    """The order of queues."""

    DEFAULT = "default"
    ROUND_ROBIN = "round_robin"
    RANDOM = "random"


_ORDERS = {DequeueStrategy.DEFAULT: "listed", DequeueStrategy.ROUND_ROBIN: "round-robin", DequeueStrategy.RANDOM: "random"}


class Worker(WorkerRecord):
    """Runs the jobs of these queues (names or Queue objects), those of the first queue first, each in a process of its own.

    It runs functions of the allow-list alone: FUSION_TASKS, or `tasks` of the settings module. `work()` is called in the main thread, as it
    handles signals. As every worker of Fusion it enqueues scheduled jobs that are due, with `with_scheduler` and without.
    """

    #: The order of its queues, if `work` is given none.
    _strategy = DequeueStrategy.DEFAULT
    log_result_lifespan = log_job_description = True
    #: RQ's way to end a job that runs too long. A worker has its own, so another class changes nothing.
    death_penalty_class = UnixSignalDeathPenalty

    def __init__(
        self,
        queues: Any,
        name: str | None = None,
        default_result_ttl: int = defaults.DEFAULT_RESULT_TTL,
        connection: Redis | None = None,
        exception_handlers: Any = None,
        maintenance_interval: int = defaults.DEFAULT_MAINTENANCE_TASK_INTERVAL,
        default_worker_ttl: int | None = None,
        worker_ttl: int | None = None,
        job_class: Any = None,
        queue_class: Any = None,
        log_job_description: bool = True,
        job_monitoring_interval: int = defaults.DEFAULT_JOB_MONITORING_INTERVAL,
        disable_default_exception_handler: bool = False,
        prepare_for_work: bool = True,
        serializer: Any = None,
        work_horse_killed_handler: Callable[..., Any] | None = None,
    ) -> None:
        self._handlers = paths_of(exception_handlers) if exception_handlers else ""
        if work_horse_killed_handler is not None:
            raise refused("work_horse_killed_handler=", "read job.latest_result() of the failed job")
        listed = [queues] if isinstance(queues, (str, Queue)) else list(queues)
        for one in listed:
            if not isinstance(one, (str, Queue)):
                raise TypeError(f"{one} is not of type {Queue} or string types")
        if connection is None:
            connection = next((one.connection for one in listed if isinstance(one, Queue)), None)
        self.connection = given(connection)
        self.job_class = backend_class(self, "job_class", override=job_class)
        self.queue_class = backend_class(self, "queue_class", override=queue_class)
        self.serializer = resolve_serializer(serializer)
        made = self.queue_class
        self.queues = [
            one if isinstance(one, Queue) else made(one, self.connection, job_class=self.job_class, serializer=serializer)
            for one in listed
        ]
        self.name = name or uuid.uuid4().hex
        self.default_result_ttl, self.worker_ttl = (
            default_result_ttl,
            worker_ttl or default_worker_ttl or defaults.DEFAULT_WORKER_TTL,
        )
        self.log_job_description = log_job_description
        self.hostname: str | None = socket.gethostname() if prepare_for_work else None
        self.pid: int | None = os.getpid() if prepare_for_work else None
        self._core: CoreWorker | None = None
        #: With `with_scheduler`, what enqueues jobs that are due; the worker does so in any case.
        self.scheduler: RQScheduler | None = None
        #: When it was asked to end while a job ran; None if it was not.
        self.shutdown_requested_date: datetime | None = None

    # -- work

    def work(
        self,
        burst: bool = False,
        logging_level: str | int | None = None,
        date_format: str = defaults.DEFAULT_LOGGING_DATE_FORMAT,
        log_format: str = defaults.DEFAULT_LOGGING_FORMAT,
        max_jobs: int | None = None,
        max_idle_time: int | None = None,
        with_scheduler: bool = False,
        dequeue_strategy: DequeueStrategy | str = DequeueStrategy.DEFAULT,
    ) -> bool:
        """Run jobs until a signal ends it, or with `burst` until the queues are empty. Return True if it ran one. SystemExit if it was ended
        cold, by a second signal.

        ConfigurationError if no allow-list is set: the error has the line to add.
        """
        setup_loghandlers(logging_level, date_format, log_format)
        settings = self._settings(max_jobs, max_idle_time, dequeue_strategy)
        if with_scheduler:
            self.scheduler = RQScheduler(self.queues, self.connection, serializer=self.serializer)
        if burst and is_suspended(self.connection):
            log.info("the workers are suspended: the burst ends")
            return False
        with self._handed_on(settings):
            try:
                return self._run(settings, burst) > 0
            finally:
                self.death_date, self._info = now(), None

    def _run(self, settings: Settings, burst: bool) -> int:
        """Run jobs; return their number."""
        from fusion.rq.core_worker import CoreWorker
        from fusion.worker.parts import SideProcesses

        names = self.queue_names()
        self._core = core = CoreWorker(
            settings, names, burst=burst, job_lines=self.log_job_description, side_processes=SideProcesses(*_beside(names))
        )
        core.membership.note("python_version", self.python_version)
        try:
            code = core.run()
        finally:
            self.shutdown_requested_date = core.asked_at
        if core.cold:
            raise SystemExit(code)
        return core.parts.recycling.jobs

    @property
    def _stop_requested(self) -> bool:
        """True if it was asked to end while a job ran."""
        return self.shutdown_requested_date is not None

    def _settings(self, max_jobs: int | None, max_idle_time: int | None, strategy: DequeueStrategy | str) -> Settings:
        settings = get_settings()
        if settings.origin_of("tasks") == "default":
            raise ConfigurationError(
                "this worker has no allow-list, so it would run nothing: name the modules of your tasks in its environment, "
                f"FUSION_TASKS=shop.tasks,shop.mail (`python -m fusion.rq.check .` prints the line for a project): see {PAGE}",
                code="FUS-227",
            )
        wanted = DequeueStrategy(strategy)
        changed: dict[str, Any] = {
            "redis_url": url_for(self.connection),
            "name": self.name,
            "order": _ORDERS[self._strategy if wanted is DequeueStrategy.DEFAULT else wanted],
            "worker_ttl": self.worker_ttl,
            "max_jobs": max_jobs,
            "max_idle_time": max_idle_time,
        }
        if defaults.of_rq():
            changed["timeout_grace"] = defaults.GRACE
        return replace(settings, **changed)

    @contextmanager
    def _handed_on(self, settings: Settings) -> Iterator[None]:
        """Have the processes that are started inside the block, those of jobs too, use the same Redis and handlers."""
        handed = {
            "FUSION_REDIS_URL": settings.redis_url or "",
            "FUSION_PREFIX": settings.prefix,
            SWITCH: "0",
            VARIABLE: self._handlers,
        }
        before = {name: os.environ.get(name) for name in handed}
        os.environ.update(handed)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def request_stop(self, signum: int = 0, frame: Any = None) -> None:
        """End when the running job is done."""
        if self._core is not None:
            self._core.drain("request_stop()")


class SpawnWorker(Worker):
    """RQ's worker whose jobs' processes are not forked from the program. No worker of Fusion forks them from it, so this is `Worker`."""


class HerokuWorker(Worker):
    """RQ's worker for a platform that sends TERM to all processes. Every worker of Fusion takes that for a warm end, so this is `Worker`."""


class RoundRobinWorker(Worker):
    """Takes turns among its queues."""

    _strategy = DequeueStrategy.ROUND_ROBIN


class RandomWorker(Worker):
    """Takes its next job from any of its queues."""

    _strategy = DequeueStrategy.RANDOM


class SimpleWorker(Worker):
    """Runs jobs in the process and thread that call `work`, one after the other: with `burst` until the queues are empty, with `max_jobs` until
    it ran that many. For tests, and for what must stay warm in one process; `Worker` is safer, and `fusion worker --executor thread` serves
    for ever."""

    def _run(self, settings: Settings, burst: bool) -> int:
        """Run what waits; without `burst` wait for more until `max_jobs` were run. NotImplementedError without both."""
        if not burst and not settings.max_jobs:
            raise refused(
                "SimpleWorker.work() without burst=True or max_jobs=", "use Worker, or `fusion worker --executor thread`"
            )
        before = use_settings(settings)  # tasks that enqueue use the same Redis
        try:
            return run_here(settings, self.queue_names(), self.connection, waits=not burst, job_lines=self.log_job_description)
        finally:
            use_settings(before)


def _beside(queues: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the command lines of a relay, and of the worker for jobs on probation."""
    from fusion.sidecar.embedded_worker import own_paths, python_program, safely

    base = [python_program(), *safely(), "-m", "fusion"]
    paths = [part for path in own_paths() for part in ("--path", path)]
    return [*base, "relay"], [*base, "worker", "--probation", "--no-relay", *paths, "--", *queues]


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
