"""The answers of the `cron` commands as text or JSON: pure functions of what was read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from fusion.cli.context import seconds
from fusion.cli.output import shown, styled
from fusion.cli.tables import table
from fusion.cli.times import told
from fusion.cron.entry import Entry
from fusion.kernel.timeutil import to_iso

if TYPE_CHECKING:
    from fusion.cron.plan import Plan
    from fusion.store.read.cron_inspector import EntryInfo, TickDecision

_COLOURS = {"active": "green", "paused": "yellow", "waits": "yellow", "error": "red"}
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


# -- list


def listing(views: Sequence[View], jobs: Mapping[str, LastJob], program: str) -> list[str]:
    """`cron list` as lines."""
    header = ("ID", "WHEN", "NEXT", "LAST", "JOB", "QUEUE", "DECLARED BY", "STATE", "ENQUEUED", "MISSED", "OVERLAPPED")
    rows = []
    for view in views:
        info, plan = view.info, view.entry.plan if view.entry else None
        job = newest(info, jobs)
        rows.append(
            [
                info.id,
                plan.text if plan else "-",
                f"{local(plan, view.next)} {distance(view.next - view.now)}" if plan and view.next is not None else "-",
                "-" if view.last is None else distance(view.last - view.now),
                f"{job.id.removeprefix(f'cron-{info.id}-')} {job.status}" if job else "-",
                view.entry.queue if view.entry else "-",
                view.declared_by,
                styled(view.state, fg=_COLOURS.get(view.state)),
                *map(str, (info.enqueued, info.missed, info.overlapped)),
            ]
        )
    return [*table(header, rows, (8, 9, 10)), *_remarks(views, program)]


def _remarks(views: Iterable[View], program: str) -> list[str]:
    """In full, with what to do, the remarks for which a word in the table is too short."""
    lines = []
    for view in views:
        info = view.info
        if info.paused:
            since = f"paused since {info.paused:%Y-%m-%d %H:%M:%S}Z"
            lines.append(f"{info.id}: {since}; to go on: {program} cron resume {info.id}")
        if view.state == "waits" and view.entry and info.mark is not None:
            until = local(view.entry.plan, info.mark)
            fix = f"to go on now: {program} cron pause {info.id}; {program} cron resume {info.id}"
            lines.append(f"{info.id}: the clock was set back: waits until {until}; {fix}")
        faults = view.entry.faults() if view.entry else []
        goes_on = f"{info.id}: goes on, but change it, it can't be declared so again"
        lines += [styled(f"{goes_on}: {fault}", fg="yellow") for fault in faults]
        lines += [styled(f"{info.id}: {problem}", fg="red") for problem in view.problems]
    return ["", *map(shown, lines)] if lines else []


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


# -- next


def ticks(plan: Plan, now: float, count: int) -> list[int]:
    """Its next ones, fewer if it ends."""
    found: list[int] = []
    tick = plan.after(int(now))
    while tick is not None and len(found) < count:
        found.append(tick)
        tick = plan.after(tick)
    return found


def coming(plan: Plan, found: Sequence[int], now: float) -> list[str]:
    """`cron next` as lines."""
    rows = [(local(plan, tick), _utc(tick), distance(tick - now), plan.note(tick)) for tick in found]
    return table(("LOCAL", "UTC", "IN", "NOTE" if any(row[3] for row in rows) else ""), rows)


def tick_document(plan: Plan, tick: int) -> dict[str, Any]:
    """A tick as JSON shows it."""
    return {"local": plan.local(tick).isoformat(), "utc": iso(tick), "note": plan.note(tick) or None}


# -- history


def decisions(plan: Plan | None, found: Sequence[TickDecision], jobs: Mapping[str, LastJob]) -> list[str]:
    """`cron history` as lines."""
    rows = []
    for one in found:
        tick = int(one.tick.timestamp())
        at_hand = one.outcome == "manual"
        job = jobs.get(one.what)
        what = one.what if job else f"{one.what} in all"
        late = "-" if at_hand else seconds((one.at - one.tick).total_seconds())
        rows.append([local(plan, tick), told(one.at), late, one.outcome, what, job.status if job else "-"])
    return table(("TICK", "DECIDED", "LATE", "OUTCOME", "JOB", "STATUS"), rows, (2,))


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


# -- validate


def declared(entries: Iterable[Entry], now: float) -> list[str]:
    """`cron validate` as lines."""
    rows, remarks = [], list[str]()
    for entry in entries:
        tick = entry.plan.after(int(now))
        when = "never again" if tick is None else f"{local(entry.plan, tick)} {distance(tick - now)}"
        rows.append((entry.id, entry.plan.text, when, entry.queue, entry.func_name))
        remarks += [f"{entry.id}: {remark}" for remark in entry.remarks(int(now))]
    return [*table(("ID", "WHEN", "NEXT", "QUEUE", "FUNCTION"), rows), *(["", *remarks] if remarks else [])]


# -- times


def local(plan: Plan | None, tick: int) -> str:
    """`2026-03-29 03:00:00 +0200`, by the plan's zone; in UTC if the plan can't be read."""
    return f"{plan.local(tick) if plan else _instant(tick):%Y-%m-%d %H:%M:%S %z}"


def _utc(tick: int) -> str:
    return f"{_instant(tick):%Y-%m-%dT%H:%M:%SZ}"


def iso(tick: int | None) -> str | None:
    """Unix seconds as ISO 8601 in UTC; None stays None."""
    return None if tick is None else to_iso(_instant(tick))


def _instant(tick: int) -> datetime:
    return datetime.fromtimestamp(tick, timezone.utc)


def distance(ahead: float) -> str:
    """`in 4 min`, `4 min ago`."""
    return f"in {seconds(ahead)}" if ahead >= 0 else f"{seconds(-ahead)} ago"
