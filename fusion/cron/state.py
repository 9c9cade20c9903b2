"""The present state of cron entries: the state of each, its next ticks, the states of its last jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Literal

from fusion.cron.entry import Entry
from fusion.store.layout.codec import text

if TYPE_CHECKING:
    from fusion.cron.plan import Plan
    from fusion.store.read.cron_inspector import EntryInfo
    from fusion.store.read.inspector import Inspector

#: State of a job that is no longer stored.
GONE = "gone"


@dataclass(frozen=True)
class LastJob:
    """A job of an entry, and its state."""

    id: str
    status: str
    created_at: str = ""


@dataclass(frozen=True)
class EntryState:
    """An entry and its state at `now` (Unix seconds by the server's clock).

    `state`: active, paused, ended, waits (for its mark, after the clock was set back) or error. `next`: its first undecided tick, in the
    past until a scheduler decides it. `last`: its last decided tick. `entry`: None if it can't be read.
    """

    info: EntryInfo
    now: float
    entry: Entry | None
    state: Literal["active", "paused", "ended", "waits", "error"]
    next: int | None
    last: int | None
    problems: tuple[str, ...]

    @classmethod
    def of(cls, info: EntryInfo, now: float) -> EntryState:
        """Return the state of an entry at `now`, Unix seconds by the server's clock."""
        entry, problems = None, []
        if info.rev:
            try:
                entry = Entry.of(info.id, info.plan, info.spec)
            except ValueError as error:
                problems.append(str(error))
        if info.error and info.error not in problems:
            problems.append(info.error)
        if info.declared_error:
            former = "; the former declaration goes on" if info.rev else ""
            problems.append(f"declared with a mistake: {info.declared_error}{former}")
        mark = int(now) if info.mark is None else info.mark
        coming = entry.plan.after(mark) if entry else None
        state: Literal["active", "paused", "ended", "waits", "error"] = (
            "paused"
            if info.paused
            else "error"
            if problems
            else "ended"
            if coming is None
            else "waits"
            if mark > now
            else "active"
        )
        # After an entry was made or resumed, its mark is that moment, which is no tick.
        decided = entry is not None and (info.enqueued or info.missed or info.overlapped) and entry.plan.after(mark - 1) == mark
        return cls(info, now, entry, state, None if info.paused else coming, mark if decided else None, tuple(problems))

    @property
    def declared_by(self) -> str:
        """The app that declares it and its version, or `run time`."""
        return f"{self.info.app} {self.info.version}" if self.info.app else "run time"


def last_jobs(inspector: Inspector, ids: Iterable[str]) -> dict[str, LastJob]:
    """Return the states of these jobs, in one round trip."""
    wanted = [*dict.fromkeys(ids)]
    found = inspector.table(wanted, ("status", "created_at")) if wanted else []
    broken: dict[str, bytes | None] = {"status": b"corrupt", "created_at": None}
    rows = [broken if isinstance(row, Exception) else row for row in found]
    return {
        job_id: LastJob(job_id, text(row["status"], GONE), text(row["created_at"]))
        for job_id, row in zip(wanted, rows, strict=True)
    }


def newest(info: EntryInfo, jobs: Mapping[str, LastJob]) -> LastJob | None:
    """Return the later one of the last tick's job and the last job run by hand."""
    found = [jobs[job_id] for job_id in (info.last_job, info.manual_job) if job_id]
    return max(found, key=lambda job: job.created_at, default=None)


def ticks(plan: Plan, now: float, count: int) -> list[int]:
    """Return the next `count` ticks of a plan, fewer if it ends."""
    found: list[int] = []
    tick = plan.after(int(now))
    while tick is not None and len(found) < count:
        found.append(tick)
        tick = plan.after(tick)
    return found


def local(plan: Plan | None, tick: int) -> str:
    """Return a text such as `2026-03-29 03:00:00 +0200` in the plan's zone; in UTC if the plan can't be read."""
    return f"{plan.local(tick) if plan else instant(tick):%Y-%m-%d %H:%M:%S %z}"


def instant(tick: int) -> datetime:
    """Return Unix seconds as a time in UTC."""
    return datetime.fromtimestamp(tick, timezone.utc)
