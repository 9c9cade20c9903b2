"""RQ's cron: a CronScheduler enqueues its jobs while it runs, an interval at once, a cron expression by this machine's time zone.

Its entries live in its process. Those of `fusion.Scheduler` are in Redis, survive it, and run once however many schedulers there are.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from types import FrameType
from typing import Any

from croniter import croniter
from redis import Redis

from fusion.rq import cron_scheduler_registry
from fusion.rq.connections import given
from fusion.rq.cron_config import load
from fusion.rq.cron_scheduler_registry import store
from fusion.rq.defaults import (
    DEFAULT_CRON_JOB_HISTORY_LIMIT,
    DEFAULT_CRON_JOB_HISTORY_TTL,
    DEFAULT_CRON_SCHEDULER_TTL,
    DEFAULT_RESULT_TTL,
)
from fusion.rq.exceptions import SchedulerNotFound, StopRequested
from fusion.rq.hints import missing
from fusion.rq.job import Job
from fusion.rq.logutils import setup_loghandlers
from fusion.rq.queue import Queue
from fusion.rq.utils import NOT_JSON_SERIALIZABLE, now, safe_json_dumps
from fusion.rq.webhook import Webhook
from fusion.settings import get_settings
from fusion.store.layout.keys import Keys

#: Most seconds between two looks.
_LONGEST = 60.0
#: RQ's form of a time.
_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"
_OPTIONS = ("job_timeout", "result_ttl", "ttl", "failure_ttl", "meta", "webhooks")


def get_cron_job_history_key(name: str) -> str:
    """Return the key of the jobs of a cron job."""
    return Keys(get_settings().prefix).rq_cron_job(name)


def get_cron_job_ids(name: str, connection: Redis, start: int = 0, end: int = -1) -> list[str]:
    """Return the ids of the jobs of a cron job, the newest first."""
    return store(connection).cron_job_ids(name, start, end)


class CronJob:
    """A function that is enqueued again and again: every `interval` seconds, or by a `cron` expression. `name`: default: its path."""

    def __init__(
        self,
        queue_name: str,
        func: Callable[..., Any] | None = None,
        func_name: str | None = None,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        interval: int | None = None,
        cron: str | None = None,
        job_timeout: int | None = None,
        result_ttl: int = DEFAULT_RESULT_TTL,
        ttl: int | None = None,
        failure_ttl: int | None = None,
        meta: dict[str, Any] | None = None,
        webhooks: Any = None,
        name: str = "",
    ) -> None:
        if bool(interval) == bool(cron):
            raise ValueError(
                "Cannot specify both interval and cron parameters" if cron else "Must specify either interval or cron parameter"
            )
        if webhooks and not (isinstance(webhooks, Sequence) and all(isinstance(one, Webhook) for one in webhooks)):
            raise TypeError("webhooks must be a sequence of Webhook instances")
        if func is None and not func_name:
            raise ValueError("Either func or func_name must be provided")
        self.func = func
        self.func_name = f"{func.__module__}.{func.__name__}" if func is not None else str(func_name)
        self.name, self.queue_name = name or self.func_name, queue_name
        self.args, self.kwargs, self.interval, self.cron = args or (), kwargs or {}, interval, cron
        self.latest_enqueue_time: datetime | None = None
        self.next_enqueue_time: datetime | None = None
        if cron:
            self.next_enqueue_time = self.get_next_enqueue_time()
        given = (job_timeout, result_ttl, ttl, failure_ttl, meta, list(webhooks) if webhooks else None)
        self.job_options = {option: value for option, value in zip(_OPTIONS, given, strict=True) if value is not None}

    @property
    def job_history_key(self) -> str:
        """The key of its jobs."""
        return get_cron_job_history_key(self.name)

    def enqueue(self, connection: Redis) -> Job:
        """Enqueue it now, and note the job under its name."""
        if self.func is None:
            raise ValueError("CronJob has no function to enqueue. It may have been created for monitoring purposes.")
        job = Queue(self.queue_name, connection).enqueue(self.func, args=self.args, kwargs=self.kwargs, **self.job_options)
        at = (job.enqueued_at or now()).timestamp()
        store(connection).note_cron_job(self.name, job.id, at, DEFAULT_CRON_JOB_HISTORY_LIMIT, DEFAULT_CRON_JOB_HISTORY_TTL)
        return job

    def get_job_ids(self, connection: Redis, start: int = 0, end: int = -1) -> list[str]:
        """Return the ids of its jobs, the newest first."""
        return get_cron_job_ids(self.name, connection, start, end)

    def get_next_enqueue_time(self) -> datetime:
        """Return when it is due next. In the hour that a clock set back repeats, a cron expression counts the first time alone."""
        if self.cron:
            after = self.latest_enqueue_time or now()
            ticks = croniter(self.cron, after.astimezone().replace(tzinfo=None))
            while True:
                local: datetime = ticks.get_next(datetime)
                tick = datetime.fromtimestamp(local.replace(fold=0).timestamp(), timezone.utc)
                if tick > after:
                    return tick
        if self.interval and self.latest_enqueue_time:
            return self.latest_enqueue_time + timedelta(seconds=self.interval)
        return datetime.max  # noqa: DTZ901 - as in RQ

    def should_run(self) -> bool:
        """Return True if it is due. An interval is due at once."""
        if self.latest_enqueue_time is None and not self.cron:
            return True
        return self.next_enqueue_time is not None and now() >= self.next_enqueue_time

    def set_enqueue_time(self, time: datetime) -> None:
        """Note that it was enqueued at this time."""
        self.latest_enqueue_time = time
        self.next_enqueue_time = self.get_next_enqueue_time()

    def to_dict(self) -> dict[str, Any]:
        """Return what is shown of it."""
        found: dict[str, Any] = {
            "func_name": self.func_name,
            "name": self.name,
            "queue_name": self.queue_name,
            "args": safe_json_dumps(self.args) if self.args else None,
            "kwargs": safe_json_dumps(self.kwargs) if self.kwargs else None,
            "interval": self.interval,
            "cron": self.cron,
            "latest_enqueue_time": _written(self.latest_enqueue_time),
            "next_enqueue_time": _written(self.next_enqueue_time),
            **self.job_options,
        }
        if "meta" in found:
            found["meta"] = safe_json_dumps(found["meta"])
        if "webhooks" in found:
            found["webhooks"] = json.dumps([one.to_dict() for one in found["webhooks"]])
        return found

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CronJob:
        """Return it from `to_dict`. It can be looked at, not enqueued."""
        args, webhooks = _parsed(data.get("args")), _parsed(data.get("webhooks"))
        if webhooks == NOT_JSON_SERIALIZABLE:
            webhooks = None
        job = cls(
            data["queue_name"], func_name=data["func_name"], name=data.get("name", ""),
            args=tuple(args) if isinstance(args, list) else args, kwargs=_parsed(data.get("kwargs")),
            interval=data.get("interval"), cron=data.get("cron"), job_timeout=data.get("job_timeout"),
            result_ttl=data.get("result_ttl", DEFAULT_RESULT_TTL), ttl=data.get("ttl"), failure_ttl=data.get("failure_ttl"),
            meta=_parsed(data.get("meta")), webhooks=[Webhook.from_dict(one) for one in webhooks] if webhooks else None,
        )  # fmt: skip
        if latest := data.get("latest_enqueue_time"):
            job.latest_enqueue_time = _read(latest)
        if following := data.get("next_enqueue_time"):
            job.next_enqueue_time = _read(following)
        return job


def _written(moment: datetime | None) -> str | None:
    return None if moment is None else moment.strftime(_TIME)


def _read(text: str) -> datetime:
    return datetime.strptime(text, _TIME).replace(tzinfo=timezone.utc)


def _parsed(text: Any) -> Any:
    return json.loads(text) if text and text != NOT_JSON_SERIALIZABLE else text


class CronScheduler:
    """Enqueues its cron jobs until INT or TERM. Two of them enqueue everything twice: have one, or use `fusion.Scheduler`."""

    def __init__(self, connection: Redis, logging_level: str | int = logging.INFO, name: str = "") -> None:
        self.connection = given(connection)
        self.hostname, self.pid = socket.gethostname(), os.getpid()
        self.name = name or f"{self.hostname}:{self.pid}:{uuid.uuid4().hex[:6]}"
        self.config_file, self.created_at = "", now()
        self._cron_jobs: list[CronJob] = []
        self.log = logging.getLogger(__name__)
        if not self.log.hasHandlers():
            setup_loghandlers(logging_level, name=__name__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CronScheduler) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def register(self, func: Callable[..., Any], queue_name: str, *args: Any, **options: Any) -> CronJob:
        """Add a cron job: the arguments are those of `CronJob` after its function."""
        names = ("args", "kwargs", "interval", "cron", *_OPTIONS, "name")
        job = CronJob(queue_name, func, **dict(zip(names, args, strict=False)), **options)
        self._cron_jobs.append(job)
        when = f"every {job.interval} seconds" if job.interval else f"by {job.cron!r}"
        self.log.info("%s is enqueued to %s %s", job.func_name, queue_name, when)
        return job

    def get_jobs(self) -> list[CronJob]:
        """Return its cron jobs."""
        return self._cron_jobs

    def enqueue_jobs(self) -> list[CronJob]:
        """Enqueue those that are due, and return them."""
        at = now()
        due = [job for job in self._cron_jobs if job.should_run()]
        for job in due:
            job.enqueue(self.connection)
            job.set_enqueue_time(at)
        return due

    def calculate_sleep_interval(self) -> float:
        """Return the seconds until one is due, 60 at most."""
        times = [job.next_enqueue_time for job in self._cron_jobs if job.next_enqueue_time]
        if not times:
            return _LONGEST
        return min(_LONGEST, max(0.0, (min(times) - now()).total_seconds()))

    def load_config_from_file(self, config_path: str) -> None:
        """Add the cron jobs that a module registers by `fusion.rq.cron.register`: a path, or a dotted name. ImportError."""
        self.config_file = config_path
        _job_data_registry.clear()
        load(config_path)
        for options in _job_data_registry:
            try:
                self.register(**options)
            except (ValueError, TypeError) as error:
                self.log.error("%s is not registered: %s", getattr(options["func"], "__name__", options["func"]), error)
        _job_data_registry.clear()

    # -- life

    def start(self) -> None:
        """Enqueue what is due until INT or TERM."""
        signal.signal(signal.SIGINT, self._request_stop)
        signal.signal(signal.SIGTERM, self._request_stop)
        self.register_birth()
        try:
            while True:
                if self.enqueue_jobs():
                    self.save()
                self.heartbeat()
                if (pause := self.calculate_sleep_interval()) > 0:
                    time.sleep(pause)
        except (KeyboardInterrupt, StopRequested):
            self.log.info("CronScheduler %s ends", self.name)
        finally:
            self.register_death()

    def _request_stop(self, signum: int, frame: FrameType | None) -> None:
        raise StopRequested

    @property
    def key(self) -> str:
        """Its key in Redis."""
        return Keys(get_settings().prefix).rq_cron_scheduler(self.name)

    def to_dict(self) -> dict[str, str]:
        """Return what is shown of it."""
        return {
            "hostname": self.hostname,
            "pid": str(self.pid),
            "name": self.name,
            "created_at": str(_written(self.created_at)),
            "config_file": self.config_file,
            "cron_jobs": json.dumps([job.to_dict() for job in self._cron_jobs]),
        }

    def save(self, pipeline: Any = None) -> None:
        """Show in Redis what it has, for two minutes."""
        store(self.connection).write_scheduler(self.name, self.to_dict(), DEFAULT_CRON_SCHEDULER_TTL)

    def restore(self, raw_data: dict[Any, Any]) -> None:
        """Take over what another showed."""
        row = {_text(name): _text(value) for name, value in raw_data.items()}
        self.hostname, self.pid, self.name = row.get("hostname", ""), int(row.get("pid", 0)), row.get("name", self.name)
        self.config_file = row.get("config_file", "")
        if row.get("created_at"):
            self.created_at = _read(row["created_at"])
        self._cron_jobs = []
        with suppress(ValueError, KeyError, TypeError):
            self._cron_jobs = [CronJob.from_dict(one) for one in json.loads(row.get("cron_jobs") or "[]")]

    @classmethod
    def fetch(cls, name: str, connection: Redis) -> CronScheduler:
        """Return the running one of this name, to look at. SchedulerNotFound."""
        row = store(connection).scheduler(name)
        if not row:
            raise SchedulerNotFound(f"CronScheduler with name '{name}' not found")
        found = cls(connection, name=name)
        found.restore(row)
        return found

    @classmethod
    def all(cls, connection: Redis, cleanup: bool = True) -> list[CronScheduler]:
        """Return the running ones, to look at."""
        if cleanup:
            cron_scheduler_registry.cleanup(connection)
        found = []
        for name in cron_scheduler_registry.get_keys(connection):
            with suppress(SchedulerNotFound):
                found.append(cls.fetch(name, connection))
        return found

    def register_birth(self) -> None:
        """Enter the list. DuplicateSchedulerError if its name is there."""
        cron_scheduler_registry.register(self)
        self.save()

    def register_death(self, pipeline: Any = None) -> None:
        """Leave the list. SchedulerNotFound if it is not there."""
        cron_scheduler_registry.unregister(self)

    def heartbeat(self) -> None:
        """Show that it runs."""
        if not store(self.connection).beat(self.name, DEFAULT_CRON_SCHEDULER_TTL):
            self.save()

    @property
    def last_heartbeat(self) -> datetime | None:
        """When it last showed that; None if it is not in the list."""
        at = store(self.connection).last_beat(self.name)
        return None if at is None else datetime.fromtimestamp(at, timezone.utc)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


_job_data_registry: list[dict[str, Any]] = []


def register(
    func: Callable[..., Any],
    queue_name: str,
    args: tuple[Any, ...] | None = None,
    kwargs: dict[str, Any] | None = None,
    interval: int | None = None,
    cron: str | None = None,
    job_timeout: int | None = None,
    result_ttl: int = DEFAULT_RESULT_TTL,
    ttl: int | None = None,
    failure_ttl: int | None = None,
    meta: dict[str, Any] | None = None,
    webhooks: Any = None,
    name: str = "",
) -> dict[str, Any]:
    """Note a cron job for the CronScheduler that loads this module; return what was noted."""
    noted = {
        "func": func, "queue_name": queue_name, "args": args, "kwargs": kwargs, "interval": interval, "cron": cron,
        "job_timeout": job_timeout, "result_ttl": result_ttl, "ttl": ttl, "failure_ttl": failure_ttl, "meta": meta,
        "webhooks": webhooks, "name": name,
    }  # fmt: skip
    _job_data_registry.append(noted)
    return noted


def create_cron(connection: Redis) -> CronScheduler:
    """Return a CronScheduler of what was registered, which is forgotten by that."""
    scheduler, noted = CronScheduler(connection), [*_job_data_registry]
    _job_data_registry.clear()
    for options in noted:
        scheduler.register(**options)
    return scheduler


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
