"""The only reader for people and tools: jobs, queues, workers. Counts are O(1), lists come by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from redis.exceptions import RedisError, ResponseError

from fusion.kernel.timeutil import from_iso
from fusion.store.layout import codec
from fusion.store.layout.compact import expand, meant, sources
from fusion.store.read.base import clock, moment
from fusion.store.read.blocked import BlockedJobs, blocked_jobs
from fusion.store.read.graph_inspector import GraphInspector
from fusion.store.read.kin_inspector import KinInspector
from fusion.store.read.queue_inspector import QueueInfo, QueueInspector
from fusion.store.read.totals import QueueStats, TotalsInspector
from fusion.store.read.worker_inspector import WorkerInfo, WorkerInspector
from fusion.store.scripting.host import PipelineCall, Steps, run

__all__ = ["BlockedJobs", "CallbackErrors", "Inspector", "Keyless", "QueueInfo", "QueueStats", "Totals", "WorkerInfo"]


@dataclass(frozen=True, slots=True)
class CallbackErrors:
    """The number of Python callbacks that ever raised; the job of the last one, and when."""

    count: int
    job_id: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Keyless:
    """Jobs of a function that ran without the concurrency key that the function declares, and when the last one ran. The record expires after
    a day."""

    function: str
    count: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts that don't belong to one queue."""

    failed: int
    scheduled: int
    suspended: bool
    #: Ended jobs that were deleted early because their set was over its cap, by state.
    dropped: dict[str, int] = field(default_factory=dict)
    #: None if there were none.
    callback_errors: CallbackErrors | None = None
    #: Ordered by the number of their jobs, most first.
    keyless: tuple[Keyless, ...] = ()


class Inspector(QueueInspector, WorkerInspector, TotalsInspector, KinInspector, GraphInspector):
    """Reads everything except cron entries, the event stream and deliveries. Never changes state; raises redis-py's errors as they come."""

    # -- jobs

    def job(self, job_id: str) -> dict[str, bytes]:
        """Read all fields of a job in their full form, however they are stored; empty if there is no such job."""
        return self.jobs([job_id])[0]

    def jobs(self, job_ids: Sequence[str]) -> list[dict[str, bytes]]:
        """Read all fields of many jobs in one round trip; empty for those that are gone."""
        return run(self.jobs_steps(job_ids))

    def jobs_steps(self, job_ids: Sequence[str]) -> Steps[list[dict[str, bytes]]]:
        """Do what `jobs` does."""
        commands = PipelineCall(self.connection)
        for job_id in job_ids:
            commands.pipe.hgetall(self.keys.job(job_id))
        rows = yield commands
        return [expand({codec.text(name): value for name, value in row.items()}) for row in rows]

    def fields(self, job_id: str, *names: str) -> list[bytes | None]:
        """Read some fields of one job in their full form; None for each that it lacks."""
        read = sources(names)
        found: Any = self.connection.hmget(self.keys.job(job_id), read)
        full = meant(names, read, found)
        return [full[name] for name in names]

    def table(self, job_ids: Sequence[str], names: Sequence[str]) -> list[dict[str, bytes | None] | Exception]:
        """Read some fields of many jobs in their full form, in one round trip. For a record that is no hash, the error stands in its place."""
        read = sources(names)
        rows = self._batch(lambda pipe: [pipe.hmget(self.keys.job(job_id), read) for job_id in job_ids], raise_on_error=False)
        for row in rows:
            if isinstance(row, RedisError) and not isinstance(row, ResponseError):
                raise row
        return [row if isinstance(row, Exception) else meant(names, read, row) for row in rows]

    def now(self) -> datetime:
        """Read the server's clock."""
        return run(self.now_steps())

    def now_steps(self) -> Steps[datetime]:
        """Do what `now` does."""
        commands = PipelineCall(self.connection)
        commands.pipe.time()
        return clock((yield commands)[0])

    def members(self, status: str, queue: str, offset: int = 0, limit: int = 100) -> list[str]:
        """List the ids in a state's set, newest last for terminal states. A negative limit means all."""
        return self._page(self.keys.set_of(status, queue), offset, limit)

    # -- of all queues

    def scheduled_count(self) -> int:
        """Count the jobs that wait for a time."""
        return int(self.connection.zcard(self.keys.scheduled))

    def scheduled(self, offset: int = 0, limit: int = 100) -> list[tuple[str, datetime]]:
        """List a page of ids with the times at which they are due, the soonest first. A negative limit means all."""
        if limit == 0:
            return []
        found: Any = self.connection.zrange(self.keys.scheduled, offset, -1 if limit < 0 else offset + limit - 1, withscores=True)
        return [(codec.text(job_id), moment(score)) for job_id, score in found]

    def due_at(self, job_id: str) -> datetime | None:
        """Read when a scheduled job is due; None if it waits for no time."""
        score: Any = self.connection.zscore(self.keys.scheduled, job_id)
        return None if score is None else moment(score)

    def failed_count(self) -> int:
        """Count the failed jobs, including quarantined ones."""
        return int(self.connection.zcard(self.keys.failed))

    def totals(self) -> Totals:
        """Read the counts that don't belong to one queue."""
        failed, scheduled, suspended, dropped, keyless = self._batch(
            lambda pipe: (
                pipe.zcard(self.keys.failed),
                pipe.zcard(self.keys.scheduled),
                pipe.exists(self.keys.suspended),
                pipe.hgetall(self.keys.dropped),
                pipe.hgetall(self.keys.history("keyless")),
            )
        )
        counts = {codec.text(state): codec.number(number) for state, number in sorted(dropped.items())}
        return Totals(failed, scheduled, bool(suspended), counts, self.callback_errors(), _keyless(keyless))

    def keyless(self) -> tuple[Keyless, ...]:
        """List the functions whose jobs ran without the concurrency key that they declare, those with most jobs first."""
        found: Any = self.connection.hgetall(self.keys.history("keyless"))
        return _keyless(found)

    def stats(self, queue: str) -> QueueStats:
        """Read the present state of a queue, and its lifetime counters. O(1)."""
        return run(self.stats_steps(queue))

    def stats_steps(self, queue: str) -> Steps[QueueStats]:
        """Do what `stats` does."""
        (info,) = yield from self.queues_steps([queue])
        return QueueStats(info, (yield from self.counters_steps(queue)), info.at)

    def callback_errors(self) -> CallbackErrors | None:
        """Read how many Python callbacks raised, and the last one; None if none did."""
        found: Any = self.connection.hmget(self.keys.callback_errors, ["count", "job_id", "at"])
        count, job_id, at = found
        return CallbackErrors(codec.number(count), codec.text(job_id), from_iso(codec.text(at))) if count else None

    def blocked(self) -> list[BlockedJobs]:
        """List the jobs that wait for something other than a time or their turn, with what they wait for."""
        return blocked_jobs(self.connection, self.keys)


def _keyless(stored: Mapping[bytes, bytes]) -> tuple[Keyless, ...]:
    found = []
    for function, value in stored.items():
        count, _, ms = codec.text(value).partition(" ")
        if count.isdecimal() and ms.isdecimal() and len(ms) < 15:
            found.append(Keyless(codec.text(function), int(count), datetime.fromtimestamp(int(ms) / 1000, timezone.utc)))
    return tuple(sorted(found, key=lambda one: (-one.count, one.function)))
