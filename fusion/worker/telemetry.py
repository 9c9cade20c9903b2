"""Sends what jobs recorded to collectors, by a thread for each collector: a dead collector delays no job and no worker's end."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from fusion.execution.telemetry import records_of
from fusion.executors.base import Death, KillCause, Run
from fusion.forkserver.messages import describe_death
from fusion.kernel import defaults
from fusion.runtime.job_log import one_line
from fusion.settings import Settings
from fusion.store.layout.calls import function_of
from fusion.store.layout.records import Claimed

if TYPE_CHECKING:
    from fusion.metrics.figures import Figures

#: The middlewares whose records a worker sends: the collector, the module that has its `Sender`, and what that is made with.
_SENDERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "fusion.contrib.opentelemetry.Tracing": ("otlp", "fusion.contrib.opentelemetry.sending", {"links": False}),
    "fusion.contrib.opentelemetry.LinkedTracing": ("otlp", "fusion.contrib.opentelemetry.sending", {"links": True}),
    "fusion.contrib.sentry.Sentry": ("sentry", "fusion.contrib.sentry.sending", {}),
}
#: Most records of one request, and seconds for which the first one waits for others.
_BATCH, _GATHER = 512, 1.0
#: Most bytes that are taken from a run: its own bound, and what it needs beyond that.
_MOST = defaults.TELEMETRY_JOB + 64 * 1024
#: Seconds before a request is repeated, doubled each time; and how often it is tried.
_AGAIN, _TRIES = 1.0, 5
#: Seconds that all threads together have at the worker's end.
_END = 2.0
#: Seconds between two warnings of one thread.
_REPEAT = 60.0
#: Ends of a run that never began.
_NEVER_BEGAN = (KillCause.STOPPED, KillCause.NO_PROCESS, KillCause.STOLEN)
_TERMINATED = "fusion.exceptions.WorkHorseTerminated"


class NotNow(Exception):
    """A collector does not take records now. `after`: the seconds that it asks for, 0 for none."""

    def __init__(self, why: str, after: float = 0.0) -> None:
        super().__init__(why)
        self.after = after


@dataclass(frozen=True, slots=True)
class DeadRun:
    """A run whose process was killed, or died. `seconds`: how long ago it began; `kind`: the class of error it counts as, empty if its task had
    finished; `task`: empty if the record does not name it."""

    fields: Mapping[bytes, bytes]
    job_id: str
    execution_id: str
    queue: str
    task: str
    seconds: float
    kind: str
    why: str
    #: Where its task failed, `module:function:line`, if that is known; and whether the job has failed by it, and runs no more.
    frame: str = ""
    failed: bool = False


class Sender(Protocol):
    """Sends records of one kind. Its methods are called in a thread of its own."""

    #: The collector, for a log line.
    shown: str

    def send(self, records: Sequence[bytes]) -> int:
        """Send records; return how many were dropped as invalid. NotNow: send them again. Any other error: they are lost."""

    def dead(self, run: DeadRun) -> list[bytes]:
        """Return the records of a run whose process sent none."""


class Outlet:
    """The records for one collector that wait, at most 2,048 and 16 MiB, and the thread that sends them."""

    def __init__(self, sender: Sender, log: logging.Logger) -> None:
        self._sender, self._log = sender, log
        self._waiting: deque[bytes | DeadRun] = deque()
        self._size = 0
        self._lock, self._come, self._many, self._over = threading.Lock(), threading.Event(), threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._complain_at = 0.0
        self.sent = self.dropped = 0

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def put(self, records: Sequence[bytes | DeadRun]) -> None:
        """Take records, as many as there is room for."""
        with self._lock:
            for record in records:
                size = len(record) if isinstance(record, bytes) else 0
                if len(self._waiting) >= defaults.TELEMETRY_WAITING or self._size + size > defaults.TELEMETRY_BYTES:
                    self.dropped += 1
                else:
                    self._waiting.append(record)
                    self._size += size
        if self._thread is None and self._waiting:
            self._thread = threading.Thread(target=self._run, name="fusion-telemetry", daemon=True)
            self._thread.start()
        if not self._come.is_set():
            self._come.set()
        if len(self._waiting) >= _BATCH:
            self._many.set()

    def close(self, until: float) -> None:
        """Send what waits, until this monotonic time. The rest is lost, as is what a collector does not answer for."""
        self._over.set()
        self._many.set()
        self._come.set()
        if self._thread is not None:
            self._thread.join(max(0.0, until - time.monotonic()))
        if self._waiting:
            self._log.warning("%d records for the %s were not sent: it does not answer", len(self._waiting), self._sender.shown)

    def _run(self) -> None:
        while not self._over.is_set() or self._waiting:
            self._come.wait()
            self._come.clear()
            self._many.wait(_GATHER)
            self._many.clear()
            while self._waiting:
                self._send_some()

    def _send_some(self) -> None:
        with self._lock:
            batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            self._size -= sum(len(one) for one in batch if isinstance(one, bytes))
        try:
            records = [record for one in batch for record in ([one] if isinstance(one, bytes) else self._sender.dead(one))]
        except Exception as error:  # a library's fault must not end the thread
            records = [one for one in batch if isinstance(one, bytes)]
            self._lose(len(batch) - len(records), error)
        for tried in range(1, _TRIES + 1):
            try:
                refused = self._sender.send(records)
            except NotNow as error:
                if tried == _TRIES or self._over.is_set():
                    self._lose(len(records), error)
                    return
                self._complain(error)
                self._over.wait(max(error.after, _AGAIN * 2 ** (tried - 1)))
            except Exception as error:
                self._lose(len(records), error)
                return
            else:
                with self._lock:
                    self.sent += len(records) - refused
                    self.dropped += refused
                if refused:
                    self._complain(ValueError(f"{refused} were refused, or did not get through"))
                return

    def _lose(self, count: int, error: Exception) -> None:
        with self._lock:
            self.dropped += count
        self._complain(error)

    def _complain(self, error: Exception) -> None:
        if (now := time.monotonic()) >= self._complain_at:
            self._complain_at = now + _REPEAT
            self._log.warning(
                "the %s takes no records: %s", self._sender.shown, one_line(str(error) or type(error).__name__, 200)
            )


class Telemetry:
    """The outlets of a worker, by collector."""

    def __init__(self, outlets: Mapping[str, Outlet]) -> None:
        self._outlets = outlets
        #: Bytes that a run has sent; and the runs that have sent all.
        self._taken: dict[Run, int] = {}
        self._whole: set[Run] = set()
        #: Dead runs whose outcome is not committed yet, by execution.
        self._dead: dict[str, DeadRun] = {}

    @classmethod
    def of(cls, settings: Settings, log: logging.Logger) -> Telemetry | None:
        """Return the outlets for the middleware of the settings; None if none of it records anything. ConfigurationError if a library is
        missing, or a variable of its can't be used."""
        found = dict[str, Outlet]()
        for path in settings.middleware or ():
            if path in _SENDERS:
                to, module, options = _SENDERS[path]
                found[to] = Outlet(import_module(module).Sender(**options), log)
        return cls(found) if found else None

    def take(self, run: Run, frame: dict[bytes, bytes]) -> None:
        """Take records of a run. Its process runs foreign code: what is over the bound is dropped here, too."""
        outlet = self._outlets.get(frame.get(b"to", b"").decode("ascii", "replace"))
        if outlet is None:
            return
        if b"last" in frame:
            self._whole.add(run)
        records = records_of(frame)
        size = self._taken.get(run, 0) + sum(map(len, records))
        if size > _MOST:
            outlet.dropped += len(records)
        else:
            self._taken[run] = size
            outlet.put(records)
        outlet.dropped += _count(frame.get(b"dropped"))

    def end(self, run: Run) -> None:
        """Forget a run that has an outcome."""
        self._taken.pop(run, None)
        self._whole.discard(run)

    def died(self, run: Run, death: Death, killed: KillCause | None = None) -> None:
        """Record a run whose process sent no outcome. `killed`: why this worker killed the process, if it did. It is sent once Redis has
        answered whether the job has failed by it."""
        whole = run in self._whole
        self.end(run)
        if whole or killed in _NEVER_BEGAN:
            return
        claimed, fields = run.claimed, run.claimed.fields
        kind, why = _end_of(run, death, killed)
        task = function_of({name: fields.get(name.encode()) for name in ("func", "data", "serializer")})
        seconds = time.monotonic() - run.began
        frame = (run.stands or {}).get(b"error_frame", b"").decode("utf-8", "replace")
        dead = DeadRun(fields, claimed.id, claimed.execution_id, claimed.queue, task, seconds, kind, why, frame)
        if killed is KillCause.LOST or (killed is KillCause.COLD and run.stands is None):
            self._put(dead)  # this worker commits no outcome of it
        else:
            self._dead[claimed.execution_id] = dead

    def answered(self, claimed: Claimed, *, failed: bool) -> None:
        """Record a dead run whose outcome is committed, or refused. `failed`: the job has failed by it."""
        if self._dead and (dead := self._dead.pop(claimed.execution_id, None)) is not None:
            self._put(replace(dead, failed=failed))

    def _put(self, dead: DeadRun) -> None:
        for outlet in self._outlets.values():
            outlet.put([dead])

    def measure(self, figures: Figures) -> None:
        """Add what was sent and dropped, and what waits."""
        from fusion.metrics import catalogue

        for to, outlet in self._outlets.items():
            figures.put(catalogue.TELEMETRY_SENT, outlet.sent, to)
            figures.put(catalogue.TELEMETRY_DROPPED, outlet.dropped, to)
            figures.put(catalogue.TELEMETRY_WAITING, outlet.waiting, to)

    def close(self) -> None:
        """Send what waits, for two seconds at most. A dead run whose outcome is not committed counts as lost: its job runs again."""
        for dead in self._dead.values():
            self._put(dead)
        until = time.monotonic() + _END
        for outlet in self._outlets.values():
            outlet.close(until)


def _end_of(run: Run, death: Death, killed: KillCause | None) -> tuple[str, str]:
    if run.stands is not None:  # it died in its hooks
        classes = run.stands.get(b"exc_classes", b"").decode("utf-8", "replace")
        return classes.partition("\n")[0].removeprefix("builtins."), ""
    if run.stopping:
        return "fusion.exceptions.JobStopped", "it was stopped, and killed after its grace"
    if death.timed_out or killed is KillCause.TIMEOUT:
        return "fusion.exceptions.JobTimeoutException", "its time was over, and it was killed"
    if killed is KillCause.MEMORY:
        return "fusion.exceptions.JobMemoryExceeded", "it held more memory than a job may, and was killed"
    if killed is not None:
        return _TERMINATED, f"killed: {killed.value}"
    return _TERMINATED, "its fork server died" if death.status is None else describe_death(death.status)


def _count(raw: bytes | None) -> int:
    return int(raw) if raw is not None and raw.isdigit() and len(raw) < 7 else 0
