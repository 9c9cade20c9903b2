"""Reads workers; a part of the Inspector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fusion.kernel import defaults
from fusion.kernel.timeutil import from_iso
from fusion.store.layout import codec
from fusion.store.layout.names import CALLBACKS, MAX_NAME
from fusion.store.read.base import InspectorBase

#: The fields of a worker's hash that are read. The reply to its last turn, which may be long, is not.
WORKER_FIELDS = (
    *("incarnation", "state", "queues", "current_job", "hostname", "pid", "birth", "last_heartbeat", "beat_ms", "lease_ms"),
    *("successful_job_count", "failed_job_count", "total_working_us", "quiet", "throttled", "version", "memory"),
    *("unloaded", "probation"),
)


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker as its hash describes it; `alive` by its heartbeat against the server's clock."""

    name: str
    state: str
    queues: tuple[str, ...]
    current_job: str
    hostname: str
    pid: int
    birth: datetime | None
    last_heartbeat: datetime | None
    alive: bool
    successful_jobs: int
    failed_jobs: int
    working_seconds: float
    #: Seconds since its last sign of life, by the server's clock.
    silent: float = 0.0
    #: It takes no jobs: an operator paused it, or memory is scarce (which, like `RAM 92.1 %`).
    quiet: bool = False
    throttled: str = ""
    #: Why it can't load its tasks; empty if it can.
    unloaded: str = ""
    #: It runs jobs on probation for another worker, and takes none that wait in a queue.
    probation: bool = False
    #: All jobs that it runs.
    jobs: tuple[str, ...] = ()
    #: Version of Fusion; empty if it does not report one.
    version: str = ""
    #: Version of its Python, as Python gives it; only `fusion.rq.Worker` reports one.
    python_version: str = ""
    #: Resident bytes of its process and its fork server, without those of jobs; None if it does not report them.
    memory: int | None = None

    @property
    def refuses(self) -> bool:
        """True if it takes no jobs for a reason of its own."""
        return self.quiet or bool(self.throttled or self.unloaded) or self.state == "suspended"

    @property
    def is_courier(self) -> bool:
        """True for a courier: it delivers callbacks and runs no jobs."""
        return self.queues == (CALLBACKS,)


class WorkerInspector(InspectorBase):
    """Reads the registered workers."""

    def workers(self, names: Sequence[str] | None = None) -> list[WorkerInfo]:
        """Read Fusion's own workers of these names, or all that are registered. Stock RQ's are in the same set and are left out."""
        if names is None:
            members: Any = self.connection.smembers(self.keys.workers)
            keys = sorted(codec.text(key) for key in members)
        else:
            keys = [self.keys.worker(name) for name in names]
        names = [self.keys.name_of_worker(key) for key in keys]
        pairs = zip(keys, map(self.keys.worker_jobs, names), strict=True)
        now_ms, rows = self._clock_and_hashes([key for pair in pairs for key in pair])
        found = zip(names, rows[::2], rows[1::2], strict=True)
        return [worker_of(name, row, jobs, now_ms) for name, row, jobs in found if "incarnation" in row]


def worker_of(name: str, row: Mapping[str, str], jobs: Mapping[str, str], now_ms: float) -> WorkerInfo:
    """Return the worker that a hash describes. `jobs`: the jobs that it holds; `now_ms`: the server's clock."""
    running = sorted(
        job for job, execution in jobs.items() if not execution.endswith(codec.AHEAD)
    )  # the others wait in its processes
    current = row.get("current_job", "")
    silent_ms = now_ms - codec.number(row.get("beat_ms"))
    return WorkerInfo(
        name=name,
        state=row.get("state", "?"),
        # A longer text is no name, and matching it as a wildcard could take hours.
        queues=tuple(name for name in row.get("queues", "").split(",") if 0 < len(name) <= MAX_NAME),
        current_job=running[0] if running and current not in running else current,
        jobs=tuple(running),
        hostname=row.get("hostname", ""),
        pid=codec.number(row.get("pid")),
        birth=from_iso(row.get("birth")),
        last_heartbeat=from_iso(row.get("last_heartbeat")),
        alive=silent_ms <= codec.number(row.get("lease_ms"), int(defaults.LEASE * 1000)),
        successful_jobs=codec.number(row.get("successful_job_count")),
        failed_jobs=codec.number(row.get("failed_job_count")),
        working_seconds=codec.number(row.get("total_working_us")) / 1e6,
        silent=max(0.0, silent_ms / 1000),
        quiet=row.get("quiet") == "1",
        throttled=row.get("throttled", ""),
        unloaded=row.get("unloaded", ""),
        probation=row.get("probation") == "1",
        version=row.get("version", ""),
        python_version=row.get("python_version", ""),
        memory=codec.number(row.get("memory")) or None,
    )
