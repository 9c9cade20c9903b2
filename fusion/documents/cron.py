"""Cron entries: what each comes to, and how JSON shows it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from fusion.cron.entry import Entry
from fusion.cron.words import in_words
from fusion.kernel.timeutil import to_iso
from fusion.store.layout.codec import text

if TYPE_CHECKING:
    from fusion.cron.plan import Plan
    from fusion.store.read.cron_inspector import EntryInfo, TickDecision
    from fusion.store.read.inspector import Inspector

#: Of a job that is kept no longer.
GONE = "gone"


@dataclass(frozen=True)
class LastJob:
    """A job of an entry, and what became of it."""

    id: str
    status: str
    created_at: str = ""


@dataclass(frozen=True)
class View:
    """An entry, and what it comes to at `now` (Unix seconds by the server's clock).

    `state`: active, paused, ended, waits (for its mark, after the clock was set back) or error. `next`: its first tick that is not
    decided; it lies in the past while no scheduler has come to it. `last`: the last that was. `entry`: None if it can't be read.
    """

    info: EntryInfo
    now: float
    entry: Entry | None
    state: str
    next: int | None
    last: int | None
    problems: tuple[str, ...]

    @classmethod
    def of(cls, info: EntryInfo, now: float) -> View:
        """Judge an entry at `now`, Unix seconds by the server's clock."""
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
        state = (
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
        # Where an entry was made or resumed, its mark is that moment and no tick.
        decided = entry is not None and (info.enqueued or info.missed or info.overlapped) and entry.plan.after(mark - 1) == mark
        return cls(info, now, entry, state, None if info.paused else coming, mark if decided else None, tuple(problems))

    @property
    def declared_by(self) -> str:
        """The app that declares it and its version, or `run time`."""
        return f"{self.info.app} {self.info.version}" if self.info.app else "run time"


def last_jobs(inspector: Inspector, ids: Iterable[str]) -> dict[str, LastJob]:
    """The states of these jobs, in one round trip."""
    wanted = [*dict.fromkeys(ids)]
    found = inspector.table(wanted, ("status", "created_at")) if wanted else []
    broken: dict[str, bytes | None] = {"status": b"corrupt", "created_at": None}
    rows = [broken if isinstance(row, Exception) else row for row in found]
    return {
        job_id: LastJob(job_id, text(row["status"], GONE), text(row["created_at"]))
        for job_id, row in zip(wanted, rows, strict=True)
    }


def newest(info: EntryInfo, jobs: Mapping[str, LastJob]) -> LastJob | None:
    """Of the last tick's job and the last by hand, the one that was made later."""
    found = [jobs[job_id] for job_id in (info.last_job, info.manual_job) if job_id]
    return max(found, key=lambda job: job.created_at, default=None)


def entry_document(view: View, jobs: Mapping[str, LastJob]) -> dict[str, Any]:
    """An entry as JSON shows it."""
    info, entry = view.info, view.entry
    policy = ("queue", "misfire", "misfire_grace", "overlap", "jitter")
    return {
        "id": info.id,
        "when": entry.plan.text if entry else None,
        "words": in_words(entry.plan) or None if entry else None,
        "plan": json.loads(entry.plan.to_json()) if entry else None,
        "function": entry.func_name if entry else None,
        "priority": entry.job.priority if entry else None,
        **{name: getattr(entry, name, None) for name in policy},
        "state": view.state,
        "next": iso(view.next),
        "last": iso(view.last),
        "mark": iso(info.mark),
        "last_job": _job(jobs.get(info.last_job)),
        "manual_job": _job(jobs.get(info.manual_job)),
        "app": info.app or None,
        "version": info.version or None,
        "declared_at": info.declared_at and to_iso(info.declared_at),
        "paused": info.paused and to_iso(info.paused),
        "errors": list(view.problems),
        "faults": entry.faults() if entry else [],
        "enqueued": info.enqueued,
        "missed": info.missed,
        "overlapped": info.overlapped,
    }


def _job(job: LastJob | None) -> dict[str, str] | None:
    return None if job is None else {"id": job.id, "status": job.status}


def ticks(plan: Plan, now: float, count: int) -> list[int]:
    """Its next ones, fewer if it ends."""
    found: list[int] = []
    tick = plan.after(int(now))
    while tick is not None and len(found) < count:
        found.append(tick)
        tick = plan.after(tick)
    return found


def tick_document(plan: Plan, tick: int) -> dict[str, Any]:
    """A tick as JSON shows it."""
    return {"local": plan.local(tick).isoformat(), "utc": iso(tick), "note": plan.note(tick) or None}


def decision_document(one: TickDecision, jobs: Mapping[str, LastJob]) -> dict[str, Any]:
    """A decision on a tick as JSON shows it."""
    job = jobs.get(one.what)
    return {
        "tick": to_iso(one.tick),
        "at": to_iso(one.at),
        "late": None if one.outcome == "manual" else (one.at - one.tick).total_seconds(),
        "outcome": one.outcome,
        "missed": int(one.what) if one.outcome == "missed" else None,
        "job": job.id if job else None,
        "status": job.status if job else None,
    }


def local(plan: Plan | None, tick: int) -> str:
    """`2026-03-29 03:00:00 +0200`, by the plan's zone; in UTC if the plan can't be read."""
    return f"{plan.local(tick) if plan else instant(tick):%Y-%m-%d %H:%M:%S %z}"


def iso(tick: int | None) -> str | None:
    """Unix seconds as ISO 8601 in UTC; None stays None."""
    return None if tick is None else to_iso(instant(tick))


def instant(tick: int) -> datetime:
    """Unix seconds as a time in UTC."""
    return datetime.fromtimestamp(tick, timezone.utc)
