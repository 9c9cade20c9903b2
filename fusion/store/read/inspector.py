"""The only reader for people and tools. Reading never changes state; counts are O(1), lists come by page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import islice
from typing import Any, cast

from redis import Redis
from redis.exceptions import RedisError, ResponseError

from fusion.kernel import defaults
from fusion.kernel.timeutil import from_iso
from fusion.store.client.classify import OTHERS_DATA
from fusion.store.layout import codec
from fusion.store.layout.keys import CALLBACKS, LIST_QUEUES, MAX_NAME, Keys, is_reserved
from fusion.store.read.blocked import Blocked, blocked_jobs

#: Scores of LOW, MODERATE, and HIGH with all above it.
_RANGES: tuple[tuple[float | str, float | str], ...] = ((0, "(1"), (1, "(2"), (2, "+inf"))
#: Replies per queue in `Inspector.queues`: seven counts, whether it is paused, and the head of each class (and the inbox of a LIST queue).
_REPLIES = 11


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue at one moment. `oldest` is when its longest waiting job was enqueued, by the head of each class.

    `error` says which of its keys is broken; what could not be counted for that is 0.
    """

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
    error: str = ""
    paused: bool = False
    #: Jobs of stock RQ's in the queue's own key, which is a LIST of RQ's; None if it is ours. No part of `count`.
    rq: int | None = None

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
    #: Seconds since its last sign of life, by the server's clock.
    silent: float = 0.0
    #: It takes no jobs: an operator said so, or memory is scarce (what is, like `RAM 92.1 %`).
    quiet: bool = False
    throttled: str = ""
    #: All that it runs.
    jobs: tuple[str, ...] = ()

    @property
    def is_courier(self) -> bool:
        """Whether it delivers callbacks and runs no jobs."""
        return self.queues == (CALLBACKS,)


@dataclass(frozen=True, slots=True)
class CallbackErrors:
    """Python callbacks that raised, how many ever; the job of the last one, and when."""

    count: int
    job_id: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Totals:
    """What is not of one queue."""

    failed: int
    scheduled: int
    suspended: bool
    #: Ended jobs that were forgotten before their time because their set was over its cap, by state.
    dropped: dict[str, int] = field(default_factory=dict)
    #: None if there were none.
    callback_errors: CallbackErrors | None = None


#: 1 January 9999: a score may be anything an outsider wrote, also +inf.
_LAST = 253_370_764_800


def _moment(score: float) -> datetime:
    """To the millisecond: what a score holds beyond that is the order of arrival, see `schedule.lua`."""
    return datetime.fromtimestamp(math.floor(min(max(score, 0), _LAST) * 1000 + 0.001) / 1000, timezone.utc)


#: Below this a score in the set of running jobs is one of stock RQ's, in seconds; +inf is one, too.
_LEAST_LEASE = 100_000_000_000


def _sound(reply: Any) -> Any:
    if isinstance(reply, Exception):
        raise reply
    return reply


def _trouble(error: Exception) -> str:
    """Of a key that is of another type than ours, in words."""
    return f"a key holds {OTHERS_DATA} (WRONGTYPE)" if str(error).startswith("WRONGTYPE") else str(error)


def _of_the_list(name: str, length: list[Any]) -> tuple[int, int | None]:
    """How many wait in the inbox, and how many jobs of stock RQ's in a LIST that is RQ's; `length` is empty where there is no LIST."""
    return (sum(length), None) if name in LIST_QUEUES or not length else (0, int(length[0]))


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

    def table(self, job_ids: Sequence[str], names: Sequence[str]) -> list[dict[str, bytes | None] | Exception]:
        """Some fields of many jobs in one round trip; the error in place of a record that is no hash."""
        pipe = self.connection.pipeline(transaction=False)
        for job_id in job_ids:
            pipe.hmget(self.keys.job(job_id), list(names))
        rows = pipe.execute(raise_on_error=False)
        for row in rows:
            if isinstance(row, RedisError) and not isinstance(row, ResponseError):
                raise row
        return [row if isinstance(row, Exception) else dict(zip(names, row, strict=True)) for row in rows]

    def now(self) -> datetime:
        """The server's clock."""
        found: Any = self.connection.time()
        return datetime.fromtimestamp(found[0] + found[1] / 1e6, timezone.utc)

    # -- queues

    def queue_names(self) -> list[str]:
        """Known queues that are not reserved, sorted."""
        members: Any = self.connection.smembers(self.keys.queues)
        names = (self.keys.name_of_queue(codec.text(key)) for key in members)
        return sorted(name for name in names if not is_reserved(name))

    def count(self, queue: str) -> int:
        """Waiting jobs of a queue, those in a LIST queue's inbox included, those of a LIST of stock RQ's not."""
        pipe = self.connection.pipeline(transaction=False)
        pipe.zcard(self.keys.fifo(queue))
        pipe.llen(self.keys.queue(queue))
        pipe.zcard(self.keys.queue(queue))
        fifo, inbox, zset = pipe.execute(raise_on_error=False)
        if queue in LIST_QUEUES:
            return int(_sound(fifo)) + int(_sound(inbox)) - self._struck(queue)
        # Of LLEN and ZCARD one fails, whatever there is.
        return int(_sound(fifo)) + (int(_sound(zset)) if isinstance(inbox, Exception) else 0)

    def _struck(self, queue: str) -> int:
        """Ids in a LIST queue's inbox that lead to no job any more."""
        return max(0, int(self.connection.zcard(self.keys.inbox(queue))) - 1)

    def _ready(self, queue: str) -> str:
        """The ZSET in which the queue's jobs wait: not its own key where that is a LIST of stock RQ's, or was one once."""
        return self._ready_of([queue])[0]

    def _ready_of(self, queues: Sequence[str]) -> list[str]:
        pipe = self.connection.pipeline(transaction=False)
        pipe.smembers(self.keys.fifos)
        for queue in queues:
            pipe.type(self.keys.queue(queue))
        noted, *types = pipe.execute(raise_on_error=False)
        fifos = LIST_QUEUES if isinstance(noted, Exception) else {codec.text(name) for name in noted} | LIST_QUEUES
        return [
            self.keys.fifo(queue) if queue in fifos or kind == b"list" else self.keys.queue(queue)
            for queue, kind in zip(queues, types, strict=True)
        ]

    def queues(self, names: Sequence[str]) -> list[QueueInfo]:
        """One pipeline for where they wait, one for all counts, one more for the ages. A broken key of one queue does not hide the others."""
        waiting = self._ready_of(names)
        pipe = self.connection.pipeline(transaction=False)
        for name, ready in zip(names, waiting, strict=True):
            for low, high in _RANGES:
                pipe.zcount(ready, low, high)
            pipe.zcount(self.keys.wip(name), _LEAST_LEASE, "(+inf")
            for key in (self.keys.finished, self.keys.deferred, self.keys.canceled):
                pipe.zcard(key(name))
            pipe.exists(self.keys.paused(name))
            for low, high in _RANGES:
                pipe.zrange(ready, cast(int, high), cast(int, low), byscore=True, desc=True, offset=0, num=1)
            if ready != self.keys.queue(name):
                pipe.llen(self.keys.queue(name))
        replies = iter(pipe.execute(raise_on_error=False))
        rows = [
            list(islice(replies, _REPLIES + (ready != self.keys.queue(name)))) for name, ready in zip(names, waiting, strict=True)
        ]
        errors = [next((_trouble(reply) for reply in row if isinstance(reply, Exception)), "") for row in rows]
        good: list[list[Any]] = [[0 if isinstance(reply, Exception) else reply for reply in row] for row in rows]
        struck = {name: self._struck(name) for name in names if name in LIST_QUEUES}
        oldest = self._oldest([[codec.text(ids[0]) for ids in row[8:_REPLIES] if ids] for row in good])
        return [
            QueueInfo(
                name,
                row[0],
                row[1],
                row[2],
                inbox - struck.get(name, 0),
                row[3],
                row[4],
                row[5],
                row[6],
                age,
                error,
                bool(row[7]),
                rq,
            )
            for name, row, age, error in zip(names, good, oldest, errors, strict=True)
            for inbox, rq in [_of_the_list(name, row[_REPLIES:])]
        ]

    def _oldest(self, heads: list[list[str]]) -> list[datetime | None]:
        pipe = self.connection.pipeline(transaction=False)
        for ids in heads:
            for job_id in ids:
                pipe.hget(self.keys.job(job_id), "enqueued_at")
        times = (None if isinstance(raw, Exception) else from_iso(raw) for raw in pipe.execute(raise_on_error=False))
        return [min((t for t in [next(times) for _ in ids] if t), default=None) for ids in heads]

    def waiting(self, queue: str, offset: int = 0, limit: int = 100) -> list[str]:
        """Ids in the order in which they will be claimed; a LIST queue's inbox comes last. A negative limit means all."""
        ids = self._page(self._ready(queue), offset, limit, desc=True)
        if queue in LIST_QUEUES and not 0 <= limit <= len(ids):
            skip = max(0, offset - int(self.connection.zcard(self.keys.ready(queue))))
            end = -1 if limit < 0 else skip + limit - len(ids) - 1
            inbox: Any = self.connection.lrange(self.keys.queue(queue), skip, end)
            found: Any = self.connection.zrange(self.keys.inbox(queue), 0, -1, withscores=True)
            struck = dict(found)
            first = int(struck.get(b"", 0)) + skip + 1
            ids += [codec.text(i) for position, i in enumerate(inbox, first) if position > struck.get(i, -1)]
        return ids

    def _page(self, key: str, offset: int, limit: int, *, desc: bool = False) -> list[str]:
        if limit == 0:
            return []  # to Redis, an end before 0 counts from the other end
        found: Any = self.connection.zrange(key, offset, -1 if limit < 0 else offset + limit - 1, desc=desc)
        return [codec.text(job_id) for job_id in found]

    def position(self, queue: str, job_id: str) -> int | None:
        """How many jobs of the queue come before it; None if it does not wait there."""
        pipe = self.connection.pipeline(transaction=False)
        for key in (self.keys.fifo(queue), self.keys.queue(queue)):
            pipe.zrevrank(key, job_id)
        found: list[Any] = pipe.execute(raise_on_error=False)
        rank = _sound(found[0])
        if rank is None and isinstance(found[1], int):
            rank = found[1]
        if rank is None and queue in LIST_QUEUES:
            inbox: Any = self.connection.lpos(self.keys.queue(queue), job_id)
            rank = None if inbox is None else inbox + int(self.connection.zcard(self.keys.ready(queue)))
        return None if rank is None else int(rank)

    def members(self, status: str, queue: str, offset: int = 0, limit: int = 100) -> list[str]:
        """Ids of a state's set, newest last for terminal states. A negative limit means all."""
        key = {
            "started": self.keys.wip(queue),
            "finished": self.keys.finished(queue),
            "deferred": self.keys.deferred(queue),
            "canceled": self.keys.canceled(queue),
            "stopped": self.keys.stopped(queue),
            "failed": self.keys.failed,
            "scheduled": self.keys.scheduled,
        }[status]
        return self._page(key, offset, limit)

    # -- the schedule: one for all queues

    def scheduled_count(self) -> int:
        return int(self.connection.zcard(self.keys.scheduled))

    def scheduled(self, offset: int = 0, limit: int = 100) -> list[tuple[str, datetime]]:
        """A page of ids with the times at which they are due, the soonest first. A negative limit means all."""
        if limit == 0:
            return []
        found: Any = self.connection.zrange(self.keys.scheduled, offset, -1 if limit < 0 else offset + limit - 1, withscores=True)
        return [(codec.text(job_id), _moment(score)) for job_id, score in found]

    def due_at(self, job_id: str) -> datetime | None:
        """When a scheduled job is due; None if it waits for no time."""
        score: Any = self.connection.zscore(self.keys.scheduled, job_id)
        return None if score is None else _moment(score)

    def failed_count(self) -> int:
        return int(self.connection.zcard(self.keys.failed))

    def totals(self) -> Totals:
        pipe = self.connection.pipeline(transaction=False)
        pipe.zcard(self.keys.failed)
        pipe.zcard(self.keys.scheduled)
        pipe.exists(self.keys.suspended)
        pipe.hgetall(self.keys.dropped)
        failed, scheduled, suspended, dropped = pipe.execute()
        counts = {codec.text(state): codec.number(count) for state, count in sorted(dropped.items())}
        return Totals(failed, scheduled, bool(suspended), counts, self.callback_errors())

    def callback_errors(self) -> CallbackErrors | None:
        found: Any = self.connection.hmget(self.keys.callback_errors, ["count", "job_id", "at"])
        count, job_id, at = found
        return CallbackErrors(codec.number(count), codec.text(job_id), from_iso(codec.text(at))) if count else None

    def blocked(self) -> list[Blocked]:
        """Jobs that wait for something other than a time or their turn, and for what."""
        return blocked_jobs(self.connection, self.keys)

    # -- workers

    def workers(self, names: Sequence[str] | None = None) -> list[WorkerInfo]:
        """Fusion's own of these names, or all that are registered; stock RQ's are in the same set."""
        if names is None:
            members: Any = self.connection.smembers(self.keys.workers)
            keys = sorted(codec.text(key) for key in members)
        else:
            keys = [self.keys.worker(name) for name in names]
        pipe = self.connection.pipeline(transaction=False)
        pipe.time()
        for key in keys:
            pipe.hgetall(key)
            pipe.hgetall(self.keys.worker_jobs(self.keys.name_of_worker(key)))
        (seconds, micros), *replies = pipe.execute()
        now_ms = seconds * 1000 + micros / 1000
        rows = [{codec.text(n): codec.text(v) for n, v in row.items()} for row in replies]
        found = zip(keys, rows[::2], rows[1::2], strict=True)
        return [self._worker(key, row, jobs, now_ms) for key, row, jobs in found if "incarnation" in row]

    def _worker(self, key: str, row: dict[str, str], jobs: dict[str, str], now_ms: float) -> WorkerInfo:
        running = sorted(
            job for job, execution in jobs.items() if not execution.endswith("a")
        )  # the others wait in its processes
        current = row.get("current_job", "")
        lease = codec.number(row.get("lease_ms"), int(defaults.LEASE * 1000))
        return WorkerInfo(
            name=self.keys.name_of_worker(key),
            state=row.get("state", "?"),
            # Anything longer is no name, and as a wildcard it could take hours.
            queues=tuple(name for name in row.get("queues", "").split(",") if 0 < len(name) <= MAX_NAME),
            current_job=running[0] if running and current not in running else current,
            jobs=tuple(running),
            hostname=row.get("hostname", ""),
            pid=codec.number(row.get("pid")),
            birth=from_iso(row.get("birth")),
            last_heartbeat=from_iso(row.get("last_heartbeat")),
            alive=now_ms - codec.number(row.get("beat_ms")) <= lease,
            successful_jobs=codec.number(row.get("successful_job_count")),
            failed_jobs=codec.number(row.get("failed_job_count")),
            working_seconds=codec.number(row.get("total_working_us")) / 1e6,
            silent=max(0.0, (now_ms - codec.number(row.get("beat_ms"))) / 1000),
            quiet=row.get("quiet") == "1",
            throttled=row.get("throttled", ""),
        )
