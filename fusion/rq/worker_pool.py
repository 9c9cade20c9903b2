"""RQ's WorkerPool: several workers that are forked from the program which calls `start()`, each as `Worker(...).work()` is."""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from multiprocessing import connection as processes
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import Any
from uuid import uuid4

from redis import Redis

from fusion.kernel.linux import become_subreaper
from fusion.rq.connections import client_like, given, url_for
from fusion.rq.hints import missing, refused
from fusion.rq.job import Job
from fusion.rq.logutils import setup_loghandlers
from fusion.rq.queue import Queue
from fusion.rq.serializers import resolve_serializer
from fusion.rq.worker import SimpleWorker, Worker
from fusion.runtime.backoff import Backoff
from fusion.runtime.supervised import VARIABLE
from fusion.settings import get_settings
from fusion.store.client.connections import connect
from fusion.store.write.broker import Broker
from fusion.supervisor.dead_workers import DeadWorkers

log = logging.getLogger("fusion.worker")

#: Seconds between two rounds. The end of a worker wakes the pool at once.
_ROUND = 1.0
#: Seconds in which a second signal counts as the first one: a terminal or a platform may send it to several processes.
_SAME_SIGNAL = 1.0
#: Seconds after which a worker that dies counts as healthy: the next one starts at once.
_HEALTHY = 10.0
#: Seconds at the end to give back the jobs of workers that died.
_FAREWELL = 5.0


@dataclass(eq=False)
class WorkerData:
    """A worker of the pool."""

    name: str
    pid: int
    process: BaseProcess
    #: The end of its line to this process. It ends warm when this end is shut.
    line: socket.socket
    started: float
    reports: bytes = b""

    @property
    def incarnation(self) -> str:
        """Its entry in the list of workers; empty if it has not entered it."""
        for line in self.reports.split(b"\n"):
            if line.startswith(b"NAME "):
                return line.rpartition(b" ")[2].decode()
        return ""

    def listen(self) -> None:
        """Read what it reports, and keep the first lines."""
        try:
            while data := self.line.recv(65536):
                self.reports = (self.reports + data)[:4096]
        except OSError:
            pass  # nothing more for now, or it is gone


class WorkerPool:
    """Keeps `num_workers` workers of these queues (names or Queue objects).

    TERM or INT: the workers end when their jobs are done. A second one, a second later: running jobs go back to their place.
    If this process dies, its workers end warm. In `start()` a worker that dies is replaced, and its jobs go back at once.
    """

    class Status(Enum):
        """The state of a pool."""

        IDLE = 1
        STARTED = 2
        STOPPED = 3

    def __init__(
        self,
        queues: Iterable[str | Queue],
        connection: Redis | None = None,
        num_workers: int = 1,
        worker_class: type[Worker] = Worker,
        serializer: Any = None,
        job_class: type[Job] = Job,
        queue_class: type[Queue] = Queue,
        exception_handlers: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        self.num_workers, self.connection, self.name = num_workers, given(connection), uuid4().hex
        self._queue_names = [one.name if isinstance(one, Queue) else str(one) for one in queues]
        self.worker_class, self.job_class, self.queue_class = worker_class, job_class, queue_class
        self.serializer, self.exception_handlers = resolve_serializer(serializer), exception_handlers
        self.status = self.Status.IDLE
        #: Its living workers, by name.
        self.worker_dict: dict[str, WorkerData] = {}
        self.log = log
        self._burst, self._level, self._sleep = True, "INFO", 0.0
        self._stopped_at: float | None = None
        self._pid = os.getpid()
        self._backoff, self._start_at = Backoff(0.1, 30.0, free=1), 0.0
        self._dead_workers: DeadWorkers | None = None

    @property
    def queues(self) -> list[Queue]:
        """Its queues."""
        return [self.queue_class(name, connection=self.connection) for name in self._queue_names]

    @property
    def number_of_active_workers(self) -> int:
        """The number of its workers that were alive at the last check."""
        return len(self.worker_dict)

    # -- starting

    def start(self, burst: bool = False, logging_level: str | None = "INFO") -> None:
        """Run the workers until a signal ends them, or with `burst` until the queues are empty. For the main thread, as it handles signals.

        ConfigurationError if no allow-list is set.
        """
        setup_loghandlers(logging_level)
        settings = replace(get_settings(), redis_url=url_for(self.connection))
        become_subreaper()  # this process adopts a dead worker's fork server: its jobs go back only once that has ended
        client = connect(settings, role="worker")
        self._dead_workers = DeadWorkers(Broker.of(client, settings), settings.lease, log)
        self._stopped_at, self.status = None, self.Status.STARTED
        log.info("worker pool %s (pid %d) keeps %d workers", self.name, os.getpid(), self.num_workers)
        before = {number: signal.signal(number, self.request_stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self.start_workers(burst=burst, logging_level=logging_level or "INFO")
            self._keep(self._dead_workers, respawn=not burst)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._dead_workers = None
            client.close()
        log.info("worker pool %s ended", self.name)

    def _keep(self, dead_workers: DeadWorkers, *, respawn: bool) -> None:
        empty_since = None
        while True:
            self.check_workers(respawn)
            dead_workers.tick(time.monotonic(), {one.pid for one in self.worker_dict.values()})
            if not self.worker_dict and (not respawn or self.status is self.Status.STOPPED):
                empty_since = empty_since or time.monotonic()
                if not dead_workers or time.monotonic() > empty_since + _FAREWELL:
                    return
            sentinels = [one.process.sentinel for one in self.worker_dict.values()]
            pause = 0.1 if dead_workers else _ROUND
            if sentinels:
                processes.wait(sentinels, pause)
            else:
                time.sleep(min(pause, max(0.01, self._start_at - time.monotonic())))

    def start_workers(self, burst: bool = True, _sleep: float = 0, logging_level: str = "INFO") -> None:
        """Start all workers, and return. Call `check_workers` from time to time, which replaces those that died."""
        self._burst, self._sleep, self._level = burst, _sleep, logging_level
        for _ in range(self.num_workers):
            self.start_worker(burst=burst, _sleep=_sleep, logging_level=logging_level)

    def start_worker(self, count: int | None = None, burst: bool = True, _sleep: float = 0, logging_level: str = "INFO") -> None:
        """Start one worker. ConfigurationError if no allow-list is set."""
        if not burst and issubclass(self.worker_class, SimpleWorker):
            raise refused("a pool of SimpleWorker without burst", "use Worker, or `fusion start -n N --executor thread`")
        name = uuid4().hex
        made = self._worker(name)
        made._settings(None, None, "default")  # a worker that can't start is an error here, not in each process
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        process = get_context("fork").Process(
            target=self._work, args=(made, theirs, burst, _sleep, logging_level), name=f"Worker {name} (WorkerPool {self.name})"
        )
        others = [one.line for one in self.worker_dict.values()]
        self._inherited = [ours, *others]
        process.start()
        theirs.close()
        assert process.pid is not None
        self.worker_dict[name] = WorkerData(name, process.pid, process, ours, time.monotonic())

    def _worker(self, name: str) -> Worker:
        return self.worker_class(
            self.queues,
            name=name,
            connection=self.connection,
            serializer=self.serializer,
            job_class=self.job_class,
            queue_class=self.queue_class,
            exception_handlers=self.exception_handlers,
        )

    def _work(self, made: Worker, line: socket.socket, burst: bool, pause: float, level: str) -> None:
        """Run a worker, in its process."""
        in_process = isinstance(made, SimpleWorker)  # it has no warm end but that of its burst
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN if in_process else signal.SIG_DFL)
        for one in self._inherited:
            one.close()
        self.worker_dict.clear()
        made.pid = os.getpid()
        os.environ[VARIABLE] = f"{os.dup(line.fileno())}:{get_settings().shutdown_timeout:g}"
        line.close()
        time.sleep(pause)
        with suppress(SystemExit):  # after a cold end its jobs are back in their places
            made.work(burst=burst, with_scheduler=True, logging_level=level)

    # -- watching

    def check_workers(self, respawn: bool = True) -> None:
        """Forget the workers that died, and with `respawn` start others in their place."""
        self.reap_workers()
        while (
            respawn
            and self.status is not self.Status.STOPPED
            and len(self.worker_dict) < self.num_workers
            and time.monotonic() >= self._start_at
        ):
            self.start_worker(burst=self._burst, _sleep=self._sleep, logging_level=self._level)

    def reap_workers(self) -> None:
        """Forget the workers that died."""
        for one in list(self.worker_dict.values()):
            one.listen()
            if one.process.exitcode is not None:
                self.handle_dead_worker(one)

    def handle_dead_worker(self, worker_data: WorkerData) -> None:
        """Forget a worker that died."""
        if self.worker_dict.pop(worker_data.name, None) is None:
            return
        worker_data.listen()
        worker_data.line.close()
        code = worker_data.process.exitcode
        if not code:
            log.info("worker %s (pid %d) ended", worker_data.name, worker_data.pid)
            return
        now = time.monotonic()
        if now - worker_data.started > _HEALTHY:
            self._backoff.reset()
        self._start_at = now + self._backoff.next()
        log.error("worker %s (pid %d) died, with code %d", worker_data.name, worker_data.pid, code)
        if self._dead_workers is not None and worker_data.incarnation:
            self._dead_workers.add(worker_data.name, worker_data.incarnation, f"its worker died, with code {code}", now)

    def all_workers_have_stopped(self) -> bool:
        """Return True if no worker is left."""
        self.reap_workers()
        return not self.worker_dict

    # -- stopping

    def request_stop(self, signum: int | None = None, frame: Any = None) -> None:
        """Have the workers end when their jobs are done; at once, if this is called again after a second."""
        if os.getpid() != self._pid:
            return  # a worker that has just been forked
        now = time.monotonic()
        if self._stopped_at is None:
            self._stopped_at, self.status = now, self.Status.STOPPED
            self.stop_workers()
        elif now - self._stopped_at > _SAME_SIGNAL:
            for one in list(self.worker_dict.values()):
                self.stop_worker(one, signal.SIGQUIT)

    def stop_workers(self) -> None:
        """Have all workers end when their jobs are done."""
        for one in list(self.worker_dict.values()):
            self.stop_worker(one)

    def stop_worker(self, worker_data: WorkerData, sig: int | None = None) -> None:
        """Have a worker end when its job is done, or send it a signal. One that is gone is left alone."""
        try:
            if sig is None:
                worker_data.line.shutdown(socket.SHUT_WR)
            elif worker_data.process.exitcode is None:
                os.kill(worker_data.pid, sig)
        except OSError:
            pass


def run_worker(
    worker_name: str,
    queue_names: Iterable[str],
    connection_class: type[Redis],
    connection_pool_class: type[Any],
    connection_pool_kwargs: dict[str, Any],
    worker_class: type[Worker] = Worker,
    serializer: Any = None,
    job_class: type[Job] = Job,
    queue_class: type[Queue] = Queue,
    exception_handlers: Any = None,
    burst: bool = True,
    logging_level: str = "INFO",
    _sleep: float = 0,
) -> None:
    """Run one worker in this process, from what `parse_connection` returns of a client."""
    client = client_like(connection_class, connection_pool_class, connection_pool_kwargs)
    pool = WorkerPool(queue_names, client, 1, worker_class, serializer, job_class, queue_class, exception_handlers)
    time.sleep(_sleep)
    pool._worker(worker_name).work(burst=burst, logging_level=logging_level)


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
