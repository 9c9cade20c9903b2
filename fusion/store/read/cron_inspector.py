"""The reader of cron entries and schedulers, for people and tools."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fusion.kernel.timeutil import from_iso
from fusion.store.layout import codec
from fusion.store.read.base import InspectorBase, moment, texts


@dataclass(frozen=True, slots=True)
class EntryInfo:
    """A cron entry as stored. Times of ticks are Unix seconds.

    `app` is empty for an entry made at run time. `mark`: its last decided tick; if that is in the future (the clock was set back), the entry
    waits for it. `next`: the tick it waits for; None if it is paused, has ended, or was not examined yet. `error`: why its last tick could
    not be decided. `declared_error`: what is wrong with the newest declaration, while the former one stays in force.
    """

    id: str
    plan: str
    spec: str
    rev: str
    app: str
    version: str
    declared_at: datetime | None
    paused: datetime | None
    mark: int | None
    next: int | None
    error: str
    declared_error: str
    enqueued: int
    overlapped: int
    missed: int
    last_job: str
    manual_job: str


@dataclass(frozen=True, slots=True)
class TickDecision:
    """One line of an entry's history. `outcome`: enqueued, overlap, missed, exists, taken or manual; `what`: the job's id, or how many missed."""

    tick: datetime
    outcome: str
    at: datetime
    what: str


@dataclass(frozen=True, slots=True)
class SchedulerInfo:
    """A scheduler as its hash describes it; `alive` by its heartbeat against the server's clock."""

    name: str
    hostname: str
    pid: int
    app: str
    version: str
    birth: datetime | None
    last_heartbeat: datetime | None
    alive: bool


class CronInspector(InspectorBase):
    """Reads cron entries, their history and the list of schedulers."""

    def entry_ids(self) -> list[str]:
        """List the ids of all entries, sorted."""
        return sorted(self._page(self.keys.cron_due))

    def count(self) -> int:
        """Count the entries."""
        return int(self.connection.zcard(self.keys.cron_due))

    def entries(self, ids: list[str] | None = None) -> list[EntryInfo]:
        """Read these entries, or all; those that are gone are left out."""
        ids = self.entry_ids() if ids is None else ids
        replies = self._batch(
            lambda pipe: [(pipe.hgetall(self.keys.cron_entry(entry)), pipe.zscore(self.keys.cron_marks, entry)) for entry in ids],
            raise_on_error=False,
        )
        rows, marks = map(texts, replies[::2]), replies[1::2]
        return [_entry(i, row, mark) for i, row, mark in zip(ids, rows, marks, strict=True) if row]

    def entry(self, entry: str) -> EntryInfo | None:
        """Read one entry; None if there is no such entry."""
        return next(iter(self.entries([entry])), None)

    def history(self, entry: str, limit: int = 20) -> list[TickDecision]:
        """Read an entry's last decisions, the newest first; up to 50 are kept."""
        found: Any = self.connection.lrange(self.keys.cron_history(entry), -limit, -1) if limit > 0 else []
        rows = [codec.text(line).split(" ", 3) for line in reversed(found)]
        return [TickDecision(moment(int(r[0])), r[1], moment(int(r[2]) / 1000), r[3]) for r in rows if len(r) == 4]

    def schedulers(self) -> list[SchedulerInfo]:
        """Read all known schedulers, including those that died in the last minutes."""
        names = sorted(self._page(self.keys.schedulers))
        now_ms, rows = self._clock_and_hashes(map(self.keys.scheduler, names), raise_on_error=False)
        return [_scheduler(name, row, now_ms) for name, row in zip(names, rows, strict=True) if row]


def _entry(entry: str, row: dict[str, str], mark: object) -> EntryInfo:
    return EntryInfo(
        id=entry,
        plan=row.get("plan", ""),
        spec=row.get("spec", ""),
        rev=row.get("rev", ""),
        app=row.get("app", ""),
        version=row.get("version", ""),
        declared_at=from_iso(row.get("declared_at")),
        paused=from_iso(row.get("paused")),
        mark=int(mark) if isinstance(mark, float) else None,
        next=codec.number(row.get("next")) or None,
        error=row.get("error", ""),
        declared_error=row.get("declared_error", ""),
        enqueued=codec.number(row.get("enqueued")),
        overlapped=codec.number(row.get("overlapped")),
        missed=codec.number(row.get("missed")),
        last_job=row.get("last_job", ""),
        manual_job=row.get("manual_job", ""),
    )


def _scheduler(name: str, row: dict[str, str], now_ms: float) -> SchedulerInfo:
    return SchedulerInfo(
        name=name,
        hostname=row.get("hostname", ""),
        pid=codec.number(row.get("pid")),
        app=row.get("app", ""),
        version=row.get("version", ""),
        birth=from_iso(row.get("birth")),
        last_heartbeat=from_iso(row.get("last_heartbeat")),
        alive=now_ms - codec.number(row.get("beat_ms")) <= codec.number(row.get("lease_ms")),
    )
