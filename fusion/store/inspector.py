"""The only reader for people and tools. Reading never changes state; counts are O(1), lists come by page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from redis import Redis

from fusion import defaults
from fusion.store import codec
from fusion.store.keys import LIST_QUEUES, Keys, is_reserved
from fusion.timeutil import from_iso

#: Priorities with a name; anything above counts as HIGH where depth is shown by class.
CLASSES = ((0, "low"), (1, "moderate"), (2, "high"))


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue at one moment. `oldest` is when its longest waiting job was enqueued, by the head of each class."""

    name: str
    low: int
    moderate: int
    high: int
    inbox: int
    started: int
    finished: int
    deferred: int
    canceled: int
    oldest: datetime | None

    @property
    def count(self) -> int:
        return self.low + self.moderate + self.high + self.inbox


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker as its hash tells it; `alive` by its heartbeat against the server's clock."""

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


@dataclass(frozen=True, slots=True)
class Totals:
    """What is not of one queue."""

    failed: int
    scheduled: int
    suspended: bool


class Inspector:
    def __init__(self, connection: Redis, *, prefix: str = defaults.KEY_PREFIX) -> None:
        self.connection = connection
        self.keys = Keys(prefix)

    # -- jobs

    def job(self, job_id: str) -> dict[str, bytes]:
        """All fields of a job; empty if there is none."""
        return self.jobs([job_id])[0]

    def jobs(self, job_ids: Sequence[str]) -> list[dict[str, bytes]]:
        pipe = self.connection.pipeline(transaction=False)
        for job_id in job_ids:
            pipe.hgetall(self.keys.job(job_id))
        return [{codec.text(name): value for name, value in row.items()} for row in pipe.execute()]

    def fields(self, job_id: str, *names: str) -> list[bytes | None]:
        found: Any = self.connection.hmget(self.keys.job(job_id), list(names))
        return list(found)

    # -- queues

    def queue_names(self) -> list[str]:
        """Known queues that are not reserved, sorted."""
        members: Any = self.connection.smembers(self.keys.queues)
        names = (self.keys.name_of_queue(codec.text(key)) for key in members)
        return sorted(name for name in names if not is_reserved(name))

    def count(self, queue: str) -> int:
        """Waiting jobs of a queue, those in a LIST queue's inbox included."""
        pipe = self.connection.pipeline(transaction=False)
        pipe.zcard(self.keys.ready(queue))
        if queue in LIST_QUEUES:
            pipe.llen(self.keys.queue(queue))
        return sum(pipe.execute())

    def queues(self, names: Sequence[str]) -> list[QueueInfo]:
        """One pipeline for all counts, one more for the ages."""
        pipe = self.connection.pipeline(transaction=False)
        for name in names:
            ready = self.keys.ready(name)
            pipe.zcount(ready, 0, "(1")
            pipe.zcount(ready, 1, "(2")
            pipe.zcount(ready, 2, "+inf")
            pipe.zcard(self.keys.wip(name))
            pipe.zcard(self.keys.finished(name))
            pipe.zcard(self.keys.deferred(name))
            pipe.zcard(self.keys.canceled(name))
            for low, high in ((0, "(1"), (1, "(2"), (2, "+inf")):
                pipe.zrange(ready, high, low, byscore=True, desc=True, offset=0, num=1)
            pipe.llen(self.keys.queue(name)) if name in LIST_QUEUES else pipe.exists(self.keys.suspended)
        rows = pipe.execute()
        width = 11
        chunks = [rows[i * width : (i + 1) * width] for i in range(len(names))]
        oldest = self._oldest([[codec.text(ids[0]) for ids in row[7:10] if ids] for row in chunks])
        return [
            QueueInfo(name, *row[:3], row[10] if name in LIST_QUEUES else 0, *row[3:7], oldest=age)
            for name, row, age in zip(names, chunks, oldest, strict=True)
        ]

    def _oldest(self, heads: list[list[str]]) -> list[datetime | None]:
        pipe = self.connection.pipeline(transaction=False)
        for ids in heads:
            for job_id in ids:
                pipe.hget(self.keys.job(job_id), "enqueued_at")
        times = iter(pipe.execute())
        return [min((t for t in (from_iso(next(times)) for _ in ids) if t), default=None) for ids in heads]

    def waiting(self, queue: str, offset: int = 0, limit: int = 100) -> list[str]:
        """Ids in the order in which they will be claimed; a LIST queue's inbox comes last."""
        end = offset + limit - 1
        ids = [codec.text(i) for i in self.connection.zrange(self.keys.ready(queue), offset, end, desc=True)]
        if queue in LIST_QUEUES and len(ids) < limit:
            skip = max(0, offset - int(self.connection.zcard(self.keys.ready(queue))))
            inbox: Any = self.connection.lrange(self.keys.queue(queue), skip, skip + limit - len(ids) - 1)
            ids += [codec.text(i) for i in inbox]
        return ids

    def position(self, queue: str, job_id: str) -> int | None:
        """How many jobs of the queue come before it; None if it does not wait there."""
        rank: Any = self.connection.zrevrank(self.keys.ready(queue), job_id)
        return None if rank is None else int(rank)

    def members(self, status: str, queue: str, offset: int = 0, limit: int = 100) -> list[str]:
        """Ids of a state's set, newest last for terminal states."""
        key = {
            "started": self.keys.wip(queue),
            "finished": self.keys.finished(queue),
            "deferred": self.keys.deferred(queue),
            "canceled": self.keys.canceled(queue),
            "stopped": self.keys.stopped(queue),
            "failed": self.keys.failed,
            "scheduled": self.keys.scheduled,
        }[status]
        return [codec.text(i) for i in self.connection.zrange(key, offset, offset + limit - 1)]

    def failed_count(self) -> int:
        return int(self.connection.zcard(self.keys.failed))

    def totals(self) -> Totals:
        pipe = self.connection.pipeline(transaction=False)
        pipe.zcard(self.keys.failed)
        pipe.zcard(self.keys.scheduled)
        pipe.exists(self.keys.suspended)
        failed, scheduled, suspended = pipe.execute()
        return Totals(failed, scheduled, bool(suspended))

    # -- workers

    def workers(self) -> list[WorkerInfo]:
        members: Any = self.connection.smembers(self.keys.workers)
        keys = sorted(codec.text(key) for key in members)
        pipe = self.connection.pipeline(transaction=False)
        pipe.time()
        for key in keys:
            pipe.hgetall(key)
        (seconds, micros), *rows = pipe.execute()
        now_ms = seconds * 1000 + micros / 1000
        found = [(key, {codec.text(n): codec.text(v) for n, v in row.items()}) for key, row in zip(keys, rows, strict=True)]
        return [self._worker(key, row, now_ms) for key, row in found if row]

    def _worker(self, key: str, row: dict[str, str], now_ms: float) -> WorkerInfo:
        lease = codec.number(row.get("lease_ms"), int(defaults.LEASE * 1000))
        return WorkerInfo(
            name=self.keys.name_of_worker(key),
            state=row.get("state", "?"),
            queues=tuple(filter(None, row.get("queues", "").split(","))),
            current_job=row.get("current_job", ""),
            hostname=row.get("hostname", ""),
            pid=codec.number(row.get("pid")),
            birth=from_iso(row.get("birth")),
            last_heartbeat=from_iso(row.get("last_heartbeat")),
            alive=now_ms - codec.number(row.get("beat_ms")) <= lease,
            successful_jobs=codec.number(row.get("successful_job_count")),
            failed_jobs=codec.number(row.get("failed_job_count")),
            working_seconds=codec.number(row.get("total_working_us")) / 1e6,
        )
