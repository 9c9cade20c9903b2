"""The record of a worker in Redis, for RQ's Worker: its entry in the list, its state, and how to find it."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from redis import Redis

from fusion import __version__
from fusion.kernel.timeutil import now
from fusion.rq.connections import given
from fusion.rq.hints import refused
from fusion.rq.job import Job
from fusion.rq.queue import Queue
from fusion.rq.version import VERSION
from fusion.settings import get_settings
from fusion.store.access import broker_of, inspector_of
from fusion.store.layout.keys import Keys

if TYPE_CHECKING:
    from fusion.store.read.inspector import WorkerInfo


class WorkerStatus(str, Enum):
    """The state of a worker."""

    STARTED = "started"
    SUSPENDED = "suspended"
    BUSY = "busy"
    IDLE = "idle"


class WorkerRecord:
    """The part of RQ's Worker that reads and writes its entry in the list of workers."""

    queue_class: type[Queue] = Queue
    job_class: type[Job] = Job
    connection: Redis
    queues: Sequence[Queue]
    name: str
    worker_ttl: int
    hostname: str | None
    pid: int | None
    #: That of RQ whose surface it has; of a worker of another version of Fusion, its version.
    version = VERSION
    #: Of the Python that runs it; empty if it does not say.
    python_version = sys.version
    #: When this object left the list; None before, and for a worker that was found in Redis.
    death_date: datetime | None = None
    _incarnation = ""
    _info: WorkerInfo | None = None

    # -- its entry

    def register_birth(self) -> None:
        """Enter the list of workers, for half a minute: `work` enters it, and stays in it, by itself."""
        self._incarnation = secrets.token_hex(8)
        self._enter()

    def register_death(self) -> None:
        """Leave the list of workers, after `register_birth`."""
        broker_of(self.connection).deregister(self.name, self._incarnation)
        self.death_date = now()

    def set_state(self, state: WorkerStatus | str, pipeline: Any = None) -> None:
        """Show another state, after `register_birth`. `work` shows its own."""
        if pipeline is not None:
            raise refused("pipeline=", "leave it out")
        if not self._incarnation:
            raise refused("set_state() of a worker that has not called register_birth()", "leave it out: work() shows its state")
        self._enter(state=WorkerStatus(state).value)

    def _enter(self, **more: str) -> None:
        settings = get_settings()
        fields = {
            "queues": ",".join(self.queue_names()),
            "pid": os.getpid(),
            "hostname": socket.gethostname(),
            "version": __version__ if self.version == VERSION else self.version,
            "python_version": self.python_version,
            **more,
        }
        if not broker_of(self.connection).register(self.name, self._incarnation, settings.lease, self.worker_ttl, fields):
            raise ValueError(f"There exists an active worker named {self.name!r} already")
        self._info = None

    # -- finding it

    @classmethod
    def all(
        cls,
        connection: Redis | None = None,
        job_class: Any = None,
        queue_class: Any = None,
        queue: Queue | None = None,
        serializer: Any = None,
    ) -> list[Any]:
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
    ) -> Any:
        """Return the living worker of this key; None if there is none. ValueError for what is no worker's key."""
        prefix = _keys().worker("")
        if not worker_key.startswith(prefix):
            raise ValueError(f"Not a valid RQ worker key: {worker_key}")
        found = inspector_of(given(connection)).workers([worker_key.removeprefix(prefix)])
        return cls._of(found[0], connection) if found and found[0].alive else None

    @classmethod
    def _of(cls, info: WorkerInfo, connection: Redis) -> Any:
        queues = [cls.queue_class(name, connection) for name in info.queues]
        made: Any = cls
        worker = made(queues, info.name, connection=connection, prepare_for_work=False)
        worker._info, worker.hostname, worker.pid = info, info.hostname, info.pid
        worker.version = VERSION if info.version == __version__ else info.version
        worker.python_version = info.python_version
        return worker

    # -- what its entry says

    @property
    def key(self) -> str:
        """Its key in Redis."""
        return _keys().worker(self.name)

    @property
    def _now(self) -> WorkerInfo | None:
        """Its fields in Redis."""
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
        if not isinstance(other, WorkerRecord):
            raise TypeError("Cannot compare workers to other types (of workers)")
        return self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


def _keys() -> Keys:
    return Keys(get_settings().prefix)


def _living(connection: Redis, queue: Queue | None) -> list[WorkerInfo]:
    found = inspector_of(connection).workers()
    return [one for one in found if one.alive and not one.is_courier and (queue is None or queue.name in one.queues)]
