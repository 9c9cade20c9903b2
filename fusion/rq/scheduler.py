"""RQ's RQScheduler, for programs that enqueue by it what is due. Every worker of Fusion does so by itself."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Iterable
from datetime import datetime
from enum import Enum
from types import FrameType
from typing import Any
from uuid import uuid4

from redis import Redis

from fusion.kernel.timeutil import now
from fusion.rq import defaults
from fusion.rq.connections import given
from fusion.rq.hints import missing, refused
from fusion.rq.logutils import setup_loghandlers
from fusion.rq.queue import Queue
from fusion.rq.serializers import resolve_serializer
from fusion.store.access import broker_of

#: Seconds. A job for a time in the past is due this long after it was enqueued (`Queue.enqueue_at`).
_SOON = 0.001


class SchedulerStatus(str, Enum):
    """The state of a scheduler."""

    STARTED = "started"
    WORKING = "working"
    STOPPED = "stopped"


class RQScheduler:
    """Enqueues jobs that are due, those of all queues. Any number may do so at once: each job moves once, in one transaction.

    So there is nothing to lock: `acquire_locks` says that it has the locks of all its queues, and others may have them, too.
    """

    Status = SchedulerStatus

    def __init__(
        self,
        queues: Any,
        connection: Redis,
        interval: int = 1,
        logging_level: str | int = logging.INFO,
        date_format: str = defaults.DEFAULT_LOGGING_DATE_FORMAT,
        log_format: str = defaults.DEFAULT_LOGGING_FORMAT,
        serializer: Any = None,
        name: str | None = None,
    ) -> None:
        listed: Iterable[Any] = [queues] if isinstance(queues, (str, Queue)) else queues
        self._queue_names = {one.name if isinstance(one, Queue) else str(one) for one in listed}
        self.connection, self.interval, self.serializer = given(connection), interval, resolve_serializer(serializer)
        self.name, self.created_at = name or uuid4().hex, now()
        self.lock_acquisition_time: datetime | None = None
        self._locks: set[str] = set()
        self._status, self._stop_requested = SchedulerStatus.STOPPED, False
        self.log = logging.getLogger(__name__)
        setup_loghandlers(logging_level, date_format, log_format, name=__name__)

    @property
    def status(self) -> SchedulerStatus:
        """Its state."""
        return self._status

    @property
    def acquired_locks(self) -> set[str]:
        """The names of its queues, once `acquire_locks` was called."""
        return self._locks

    def acquire_locks(self, auto_start: bool = False) -> set[str]:
        """Return the names of its queues: none of them has to be locked."""
        self._locks, self.lock_acquisition_time = set(self._queue_names), now()
        if auto_start and self._status is SchedulerStatus.STOPPED:
            self.start()
        return self._locks

    def release_locks(self) -> None:
        """Have `acquired_locks` be empty."""
        self._locks = set()

    def prepare_registries(self, queue_names: Iterable[str] | None = None) -> None:
        """Do nothing: what is due is found at once."""

    def enqueue_scheduled_jobs(self) -> None:
        """Enqueue all jobs that are due, or will be within a millisecond."""
        self._status = SchedulerStatus.WORKING
        broker = broker_of(self.connection)
        waited = False
        while True:
            moved, next_in, *_ = broker.promote()
            if not moved:
                if waited or next_in is None or next_in > _SOON:
                    break
                waited = True
                time.sleep(next_in)
        self._status = SchedulerStatus.STARTED

    def start(self) -> None:
        """Refuse: it starts no process."""
        raise refused(
            "RQScheduler.start()", "leave it out: every worker enqueues what is due. Or call work() in a process of its own"
        )

    def work(self) -> None:
        """Enqueue what is due each `interval` seconds, until INT or TERM. For the main thread, as it handles signals."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.request_stop)
        self.acquire_locks()
        while not self._stop_requested:
            self.enqueue_scheduled_jobs()
            time.sleep(self.interval)
        self.stop()

    def request_stop(self, signum: int | None = None, frame: FrameType | None = None) -> None:
        """Have `work` end."""
        self._stop_requested = True

    def stop(self) -> None:
        """Note that it has ended."""
        self.release_locks()
        self._status = SchedulerStatus.STOPPED


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
