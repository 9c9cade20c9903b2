"""The output of the `cron` commands as text or JSON: pure functions of the data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from fusion.cli.context import seconds
from fusion.cli.output import shown, styled
from fusion.cli.tables import table, table_of
from fusion.cli.times import told
from fusion.cron.entry import Entry
from fusion.cron.state import GONE as GONE
from fusion.cron.state import EntryState as EntryState
from fusion.cron.state import LastJob as LastJob
from fusion.cron.state import instant, local, newest
from fusion.cron.state import ticks as ticks
from fusion.views.cron import CronEntryListedView

if TYPE_CHECKING:
    from fusion.cron.plan import Plan
    from fusion.store.read.cron_inspector import EntryInfo, TickDecision

_COLOURS = {"active": "green", "paused": "yellow", "waits": "yellow", "error": "red"}
# -- list


def listing(views: Sequence[EntryState], jobs: Mapping[str, LastJob], program: str) -> list[str]:
    """Return `cron list` as lines."""
    entries, by_id = [CronEntryListedView.of(view, jobs) for view in views], {view.info.id: view for view in views}

    def cell(told: Callable[[EntryState], str]) -> Callable[[CronEntryListedView], str]:
        return lambda one: told(by_id[one.id])

    cells: dict[str, Callable[[CronEntryListedView], str]] = {
        "next": cell(_next),
        "last": cell(lambda view: "-" if view.last is None else distance(view.last - view.now)),
        "last_job": cell(lambda view: _job(view.info, newest(view.info, jobs))),
        "app": cell(lambda view: view.declared_by),
        "state": lambda one: styled(one.state, fg=_COLOURS.get(one.state)),
    }
    order = ("id", "when", "next", "last", "last_job", "queue", "app", "state")
    return [*table_of(CronEntryListedView, entries, order=order, cells=cells), *_remarks(views, program)]


def _next(view: EntryState) -> str:
    if view.entry is None or view.next is None:
        return "-"
    due = "due " * (view.next < view.now)  # and no scheduler has handled it yet
    return f"{local(view.entry.plan, view.next)} {due}{distance(view.next - view.now)}"


def _job(info: EntryInfo, job: LastJob | None) -> str:
    return f"{job.id.removeprefix(f'cron-{info.id}-')} {job.status}" if job else "-"


def _remarks(views: Iterable[EntryState], program: str) -> list[str]:
    """Return full sentences with advice for states that are one word in the table."""
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


# -- next


def coming(plan: Plan, found: Sequence[int], now: float) -> list[str]:
    """Return `cron next` as lines."""
    rows = [(local(plan, tick), _utc(tick), distance(tick - now), plan.note(tick)) for tick in found]
    return table(("LOCAL", "UTC", "IN", "NOTE" if any(row[3] for row in rows) else ""), rows)


# -- history


def decisions(plan: Plan | None, found: Sequence[TickDecision], jobs: Mapping[str, LastJob]) -> list[str]:
    """Return `cron history` as lines."""
    rows = []
    for one in found:
        tick = int(one.tick.timestamp())
        at_hand = one.outcome == "manual"
        job = jobs.get(one.what)
        what = one.what if job else f"{one.what} in all"
        late = "-" if at_hand else seconds((one.at - one.tick).total_seconds())
        rows.append([local(plan, tick), told(one.at), late, one.outcome, what, job.status if job else "-"])
    return table(("TICK", "DECIDED", "LATE", "OUTCOME", "JOB", "STATUS"), rows, (2,))


# -- validate


def declared(entries: Iterable[Entry], now: float) -> list[str]:
    """Return `cron validate` as lines."""
    rows, remarks = [], list[str]()
    for entry in entries:
        tick = entry.plan.after(int(now))
        when = "never again" if tick is None else f"{local(entry.plan, tick)} {distance(tick - now)}"
        rows.append((entry.id, entry.plan.text, when, entry.queue, entry.func_name))
        remarks += [f"{entry.id}: {remark}" for remark in entry.remarks(int(now))]
    return [*table(("ID", "WHEN", "NEXT", "QUEUE", "FUNCTION"), rows), *(["", *remarks] if remarks else [])]


# -- times


def _utc(tick: int) -> str:
    return f"{instant(tick):%Y-%m-%dT%H:%M:%SZ}"


def distance(ahead: float) -> str:
    """Return a time relative to now: `in 4 min`, `4 min ago`."""
    return f"in {seconds(ahead)}" if ahead >= 0 else f"{seconds(-ahead)} ago"
