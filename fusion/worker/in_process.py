"""A worker without processes: it runs jobs in the process and thread that call it, one after the other. RQ's SimpleWorker, and the drain of the
test kit."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redis import Redis

from fusion import __version__
from fusion.execution.completion import Decision
from fusion.execution.frames import unpack
from fusion.execution.perform import Performer
from fusion.executors import readings
from fusion.kernel import stopping
from fusion.runtime.job_log import JobLog
from fusion.runtime.served_queues import ServedQueues
from fusion.settings import Settings
from fusion.store.client.connections import check_server, connect
from fusion.store.client.errors import fusion_errors
from fusion.store.layout.records import Claimed, Commit, LogLine, Report, Turn, TurnRequest
from fusion.store.write.broker import Broker
from fusion.worker.envelope import EnvelopeCheck
from fusion.worker.outcomes import of_frame
from fusion.worker.reports import report_of

if TYPE_CHECKING:
    from fusion.execution.guards import Guard

log = logging.getLogger("fusion.worker")


#: Seconds between turns that found nothing, of a worker that waits for jobs.
_PAUSE = 0.2


#: A job, its outcome, and the seconds that it took.
Ended = tuple[Claimed, Decision, float]


class InProcess:
    """Claims jobs and runs them here until the queues are empty; with `waits` until it ran `max_jobs`, or found none for `max_idle_time`.

    There is no process between a task and its worker: one that ends this process, or hangs in C, takes the worker with it. Its jobs run again,
    or fail, once the lease is over. A thread renews the lease meanwhile.
    """

    def __init__(
        self,
        settings: Settings,
        queues: list[str],
        connection: Redis,
        *,
        waits: bool = False,
        job_lines: bool = True,
        guard: Guard = stopping,
    ) -> None:
        self._guard = guard
        self._settings, self._served = settings, ServedQueues(queues, settings.order, settings.weights)
        self._given, self._waits = connection, waits
        #: The writer of its Redis.
        self.broker = Broker.of(connect(settings), settings)
        self._performer = Performer(settings.tasks, settings.max_result, settings.allow_pickle, settings.middleware or ())
        self._envelopes = EnvelopeCheck(settings, log)
        self._job_log = JobLog(log, job_lines, messages=settings.log_errors == "full")
        self.name, self._incarnation, self._token = settings.name or "", secrets.token_hex(8), 0
        #: Jobs that were run.
        self.done = 0

    def run(self) -> None:
        """Run what waits. Redis's errors are those of the given client."""
        connection = self.broker.connection
        with fusion_errors(self._given):
            check_server(connection, allow_eviction=self._settings.allow_eviction, prefix=self._settings.prefix)
            self.enter()
            try:
                self._work()
            finally:
                self.broker.deregister(self.name, self._incarnation)
                connection.close()

    def enter(self) -> None:
        """Register as a worker, under a name that no other has."""
        base, number = self.name, 0
        fields = {
            "queues": ",".join(self._served.queues),
            "pid": os.getpid(),
            "hostname": socket.gethostname(),
            "version": __version__,
        }
        while not self.broker.register(self.name, self._incarnation, self._settings.lease, self._settings.worker_ttl, fields):
            number += 1
            self.name = f"{base}.{number}"

    def _work(self) -> None:
        ended: Ended | None = None
        most, idle = self._settings.max_jobs, 0.0
        while True:
            slots = [] if most is not None and self.done >= most else [0]
            turn = self.turn(ended, slots)
            ended = None
            for claimed in turn.jobs:
                ended = self.run_one(claimed)
                self.done, idle = self.done + 1, 0.0
            if not ended and not slots:
                while self.broker.release()[0]:  # children of the last job
                    pass
                return
            if not ended and not self._more(turn):
                if not self._waits or idle >= (self._settings.max_idle_time or float("inf")):
                    return
                time.sleep(_PAUSE)
                idle += _PAUSE

    def turn(self, ended: Ended | None, slots: Sequence[int] = (0,)) -> Turn:
        """Commit what has ended, and claim a job. A worker that Redis has forgotten registers again."""
        commits = []
        if ended is not None:
            claimed, d, elapsed = ended
            told = elapsed, 0.0, d.delay, d.reason, d.fields, d.attempt, claimed.keyed
            commits = [Commit(d.kind, claimed.id, claimed.execution_id, *told)]
        while True:
            self._token += 1
            turn = self.broker.turn(
                TurnRequest(
                    self.name, self._incarnation, self._token, commits, self._served.turn, slots, self._settings.lease,
                    self._settings.worker_ttl, listed=self._settings.order in ("listed", "weighted"),
                )
            )  # fmt: skip
            if turn.status != "unregistered":
                break
            self.enter()
        if ended is not None and turn.answers:
            answer, decision = turn.answers[0], ended[1]
            if answer == "failed":
                answer, decision = "ok", replace(decision, kind="failed")
            self._job_log.committed(ended[0], decision, answer)
        return turn

    def _more(self, turn: Turn) -> bool:
        """Return True if another turn may find a job."""
        if turn.status != "ok":
            return False
        if turn.next_in is not None and turn.next_in <= 0:
            return self.broker.promote()[0] > 0
        released, release_in = self.broker.release()
        return bool(turn.again or released or release_in == 0)

    def run_one(self, claimed: Claimed) -> Ended:
        """Run a job that was claimed, and return how it ended, for the next `turn`."""
        self._served.served(claimed.queue, claimed.fields.get(b"priority", b""))
        limit = self._envelopes.open(claimed)
        if isinstance(limit, Decision):
            return claimed, limit, 0.0
        self._job_log.started(claimed)
        line = _Line(self.broker, self.name, claimed)
        own = {b"id": claimed.id, b"execution_id": claimed.execution_id, b"worker_name": self.name}
        fields = claimed.fields | {name: value.encode() for name, value in own.items()}
        with self._renewed(claimed):
            frame = self._performer.run(fields, line.send, line.offer, line, self._guard)
        return claimed, of_frame(claimed.fields, {**line.left, **line.stands, **frame}), readings.elapsed(frame)

    @contextmanager
    def _renewed(self, claimed: Claimed) -> Iterator[None]:
        """Renew the job's lease while the block runs."""
        over = threading.Event()
        renewer = threading.Thread(target=self._renew, args=(claimed, over), name="fusion-lease", daemon=True)
        renewer.start()
        try:
            yield
        finally:
            over.set()
            renewer.join()

    def _renew(self, claimed: Claimed, over: threading.Event) -> None:
        settings, broker = self._settings, None
        while not over.wait(settings.lease / 3):
            broker = broker or Broker.of(connect(settings, role="worker"), settings)
            try:
                broker.extend(
                    self.name,
                    self._incarnation,
                    [(claimed.id, claimed.execution_id)],
                    settings.lease,
                    settings.worker_ttl,
                    "busy",
                )
            except Exception as error:  # tried again before the lease is over
                log.warning("the lease of job %s was not renewed: %s", claimed.id, type(error).__name__)
        if broker is not None:
            broker.connection.close()


class _Line:
    """The line of a run in this process: what it sends goes to Redis at once."""

    def __init__(self, broker: Broker, worker: str, claimed: Claimed) -> None:
        self._broker, self._worker, self._claimed = broker, worker, claimed
        #: The outcome that stands once callbacks begin, and the newest report.
        self.stands: dict[bytes, bytes] = {}
        self.left: dict[bytes, bytes] = {}
        self._reported = 0.0

    def send(self, fields: dict[bytes, bytes]) -> None:
        """Take a frame."""
        kind, claimed = fields.get(b"kind"), self._claimed
        if kind == b"stands":
            self.stands = unpack(fields[b"frame"][4:])
        elif kind == b"meta":
            self._broker.save_meta(claimed.id, fields[b"meta"], claimed.execution_id)
        elif kind == b"report":
            self._report(report_of(fields), b"wait" in fields)
        elif kind == b"log":
            text = fields.get(b"message", b"").decode("utf-8", "replace")
            line = LogLine("log", text, claimed.id, claimed.queue, worker=self._worker)
            self._broker.log_event([line], secrets.token_hex(8))

    def _report(self, found: dict[bytes, bytes], at_once: bool) -> None:
        self.left |= found
        now = time.monotonic()
        if at_once or now - self._reported >= 1.0:
            self._reported = now
            whole = Report(
                self._claimed.id, self._claimed.execution_id, self.left.get(b"progress", b""), self.left.get(b"cursor", b"")
            )
            self._broker.report(self._worker, [whole])
            self.left = {}

    def offer(self, fields: dict[bytes, bytes]) -> bool:
        """Take a frame that might be dropped."""
        self.send(fields)
        return True

    def asked_to_end(self) -> bool:
        """False: nothing asks it to."""
        return False

    def wait_for(self, key: bytes, value: bytes) -> bool:
        """Return at once: all that was sent is stored."""
        return True


def run_here(settings: Settings, queues: list[str], connection: Redis, **options: Any) -> int:
    """Run what waits in the queues, here; return the number of jobs."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("SimpleWorker.work() runs in the main thread alone: timeouts are raised by a signal")
    worker = InProcess(settings, queues, connection, **options)
    worker.run()
    return worker.done
