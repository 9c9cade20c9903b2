"""RQ's Worker: a Fusion worker made from a client, which runs in the process that calls `work()`."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from redis import Redis

from fusion import __version__
from fusion.exceptions import ConfigurationError
from fusion.rq import defaults
from fusion.rq.connections import given, url_for
from fusion.rq.exception_handlers import VARIABLE, paths_of
from fusion.rq.hints import PAGE, missing, refused
from fusion.rq.job import Job
from fusion.rq.logutils import setup_loghandlers
from fusion.rq.queue import Queue
from fusion.rq.serializers import resolve_serializer
from fusion.rq.simple_worker import run_here
from fusion.rq.suspension import is_suspended
from fusion.rq.timeouts import UnixSignalDeathPenalty
from fusion.settings import Settings, get_settings, use_settings
from fusion.sidecar import SWITCH
from fusion.store.access import broker_of, inspector_of
from fusion.store.layout.keys import Keys

if TYPE_CHECKING:
    from fusion.store.read.inspector import WorkerInfo
    from fusion.worker.worker import Worker as CoreWorker


log = logging.getLogger("fusion.worker")


class DequeueStrategy(str, Enum):
    """The order of queues."""

    DEFAULT = "default"
    ROUND_ROBIN = "round_robin"
    RANDOM = "random"


class WorkerStatus(str, Enum):
    """The state of a worker."""

    STARTED = "started"
    SUSPENDED = "suspended"
    BUSY = "busy"
    IDLE = "idle"


_ORDERS = {DequeueStrategy.DEFAULT: "listed", DequeueStrategy.ROUND_ROBIN: "round-robin"}


class Worker:
    """Runs the jobs of these queues (names or Queue objects), those of the first queue first, each in a process of its own.

    It runs functions of the allow-list alone: FUSION_TASKS, or `tasks` of the settings module. `work()` is called in the main thread, as it
    handles signals. As every worker of Fusion it enqueues scheduled jobs that are due, with `with_scheduler` and without.
    """

    queue_class: type[Queue] = Queue
    job_class: type[Job] = Job
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
        if isinstance(job_class, type):
            self.job_class = job_class
        if isinstance(queue_class, type):
            self.queue_class = queue_class
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
        self._incarnation = ""
        self._info: WorkerInfo | None = None

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
        """Run jobs until a signal ends it, or with `burst` until the queues are empty. Return True if it ran one.

        ConfigurationError if no allow-list is set: the error has the line to add.
        """
        from fusion.worker.parts import SideProcesses
        from fusion.worker.worker import Worker as CoreWorker

        setup_loghandlers(logging_level, date_format, log_format)
        settings = self._settings(max_jobs, max_idle_time, dequeue_strategy)
        if burst and is_suspended(self.connection):
            log.info("the workers are suspended: the burst ends")
            return False
        names = self.queue_names()
        with self._handed_on(settings):
            self._core = core = CoreWorker(
                settings, names, burst=burst, job_lines=self.log_job_description, side_processes=SideProcesses(*_beside(names))
            )
            core.run()
        return core.parts.recycling.jobs > 0

    def _settings(self, max_jobs: int | None, max_idle_time: int | None, strategy: DequeueStrategy | str) -> Settings:
        settings = get_settings()
        if settings.origin_of("tasks") == "default":
            raise ConfigurationError(
                "this worker has no allow-list, so it would run nothing: name the modules of your tasks in its environment, "
                f"FUSION_TASKS=shop.tasks,shop.mail (`python -m fusion.rq.check .` prints the line for a project): see {PAGE}",
                code="FUS-227",
            )
        wanted = DequeueStrategy(strategy)
        order = _ORDERS.get(self._strategy if wanted is DequeueStrategy.DEFAULT else wanted)
        if order is None:
            raise refused("dequeue_strategy='random'", "use 'round_robin'")
        changed: dict[str, Any] = {
            "redis_url": url_for(self.connection),
            "name": self.name,
            "order": order,
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

    def register_birth(self) -> None:
        """Enter the list of workers, for half a minute: `work` enters it, and stays in it, by itself."""
        settings = get_settings()
        fields = {
            "queues": ",".join(self.queue_names()),
            "pid": os.getpid(),
            "hostname": socket.gethostname(),
            "version": __version__,
        }
        self._incarnation = secrets.token_hex(8)
        if not broker_of(self.connection).register(self.name, self._incarnation, settings.lease, self.worker_ttl, fields):
            raise ValueError(f"There exists an active worker named {self.name!r} already")

    def register_death(self) -> None:
        """Leave the list of workers, after `register_birth`."""
        broker_of(self.connection).deregister(self.name, self._incarnation)

    def request_stop(self, signum: int = 0, frame: Any = None) -> None:
        """End when the running job is done."""
        if self._core is not None:
            self._core.drain("request_stop()")

    # -- looking

    @classmethod
    def all(
        cls,
        connection: Redis | None = None,
        job_class: Any = None,
        queue_class: Any = None,
        queue: Queue | None = None,
        serializer: Any = None,
    ) -> list[Worker]:
        """Return the living workers, all of them or those of a queue."""
        client = queue.connection if connection is None and queue is not None else given(connection)
        return [cls._of(info, client) for info in _living(client, queue)]

    @classmethod
    def all_keys(cls, connection: Redis | None = None, queue: Queue | None = None) -> list[str]:
        """Return the keys of the living workers."""
        return [worker.key for worker in cls.all(connection, queue=queue)]

    @classmethod
    def count(cls, connection: Redis | None = None, queue: Queue | None = None) -> int:
        """Return the number of living workers."""
        client = queue.connection if connection is None and queue is not None else given(connection)
        return len(_living(client, queue))

    @classmethod
    def find_by_key(
        cls, worker_key: str, connection: Redis, job_class: Any = None, queue_class: Any = None, serializer: Any = None
    ) -> Worker | None:
        """Return the living worker of this key; None if there is none. ValueError for what is no worker's key."""
        prefix = _keys().worker("")
        if not worker_key.startswith(prefix):
            raise ValueError(f"Not a valid RQ worker key: {worker_key}")
        found = inspector_of(given(connection)).workers([worker_key.removeprefix(prefix)])
        return cls._of(found[0], connection) if found and found[0].alive else None

    @classmethod
    def _of(cls, info: WorkerInfo, connection: Redis) -> Worker:
        queues = [cls.queue_class(name, connection) for name in info.queues]
        worker = cls(queues, info.name, connection=connection, prepare_for_work=False)
        worker._info, worker.hostname, worker.pid = info, info.hostname, info.pid
        return worker

    @property
    def key(self) -> str:
        """Its key in Redis."""
        return _keys().worker(self.name)

    @property
    def _now(self) -> WorkerInfo | None:
        """What Redis has of it."""
        if self._info is None:
            self.refresh()
        return self._info

    def refresh(self) -> None:
        """Read again what Redis has of it."""
        found = inspector_of(self.connection).workers([self.name])
        self._info = found[0] if found else None

    def get_state(self) -> str:
        """Return its state: `idle`, `busy`, `suspended`, or `?` if it is not registered."""
        info = self._now
        return "?" if info is None else info.state

    state = property(get_state, doc="Its state.")

    def get_current_job_id(self) -> str | None:
        """Return the id of the job that it runs; None if it runs none."""
        info = self._now
        return (info.current_job or None) if info is not None else None

    def get_current_job(self) -> Job | None:
        """Return the job that it runs; None if it runs none."""
        job_id = self.get_current_job_id()
        return self.job_class.fetch_many([job_id], self.connection)[0] if job_id else None

    @property
    def last_heartbeat(self) -> datetime | None:
        """When it last gave a sign of life."""
        return self._now.last_heartbeat if self._now else None

    @property
    def birth_date(self) -> datetime | None:
        """When it registered."""
        return self._now.birth if self._now else None

    @property
    def successful_job_count(self) -> int:
        """How many of its jobs finished."""
        return self._now.successful_jobs if self._now else 0

    @property
    def failed_job_count(self) -> int:
        """How many of its jobs failed."""
        return self._now.failed_jobs if self._now else 0

    @property
    def total_working_time(self) -> float:
        """Seconds for which it ran jobs."""
        return self._now.working_seconds if self._now else 0.0

    def queue_names(self) -> list[str]:
        """Return the names of its queues."""
        return [queue.name for queue in self.queues]

    def queue_keys(self) -> list[str]:
        """Return the keys of its queues."""
        return [_keys().queue(queue.name) for queue in self.queues]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Worker):
            raise TypeError("Cannot compare workers to other types (of workers)")
        return self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


class SpawnWorker(Worker):
    """RQ's worker whose jobs' processes are not forked from the program. No worker of Fusion forks them from it, so this is `Worker`."""


class HerokuWorker(Worker):
    """RQ's worker for a platform that sends TERM to all processes. Every worker of Fusion takes that for a warm end, so this is `Worker`."""


class RoundRobinWorker(Worker):
    """Takes turns among its queues."""

    _strategy = DequeueStrategy.ROUND_ROBIN


class SimpleWorker(Worker):
    """Runs jobs in the process and thread that call `work`, one after the other: with `burst` until the queues are empty, with `max_jobs` until
    it ran that many. For tests, and for what must stay warm in one process; `Worker` is safer, and `fusion worker --executor thread` serves
    for ever."""

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
        """Run what waits; without `burst` wait for more until `max_jobs` were run. NotImplementedError without both."""
        if not burst and not max_jobs:
            raise refused(
                "SimpleWorker.work() without burst=True or max_jobs=", "use Worker, or `fusion worker --executor thread`"
            )
        setup_loghandlers(logging_level, date_format, log_format)
        settings = self._settings(max_jobs, max_idle_time, dequeue_strategy)
        with self._handed_on(settings):
            before = use_settings(settings)  # tasks that enqueue use the same Redis
            try:
                names, lines = self.queue_names(), self.log_job_description
                return run_here(settings, names, self.connection, waits=not burst, job_lines=lines) > 0
            finally:
                use_settings(before)


def _keys() -> Keys:
    return Keys(get_settings().prefix)


def _living(connection: Redis, queue: Queue | None) -> list[WorkerInfo]:
    found = inspector_of(connection).workers()
    return [one for one in found if one.alive and not one.is_courier and (queue is None or queue.name in one.queues)]


def _beside(queues: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the command lines of a relay, and of the worker for jobs on probation."""
    from fusion.sidecar.embedded_worker import _own_paths, _python, _safely

    base = [_python(), *_safely(), "-m", "fusion"]
    paths = [part for path in _own_paths() for part in ("--path", path)]
    return [*base, "relay"], [*base, "worker", "--probation", "--no-relay", *paths, "--", *queues]


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
