"""A cron entry, as every interface shows it: in a list, and with its next ticks and last decisions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from fusion.cron.state import LastJob, instant
from fusion.views.base import View, part, public, view

if TYPE_CHECKING:
    from typing import Self

    from fusion.cron.plan import Plan
    from fusion.cron.state import EntryState
    from fusion.store.read.cron_inspector import TickDecision


@part
class EntryJobView(View):
    """A job of an entry."""

    id: str = public("The job.")
    status: str = public("Its state; `gone` if it is no longer stored.")


@view
class CronEntryListedView(View):
    """A cron entry in its present state."""

    id: str = public("Its id.", column="ID")
    when: str | None = public("When it is due: a cron expression, or `every 5m`.", column="WHEN")
    words: str | None = public("The same in words, if that is possible.")
    plan: dict[str, Any] | None = public("The same in parts; null if it can't be read.")
    function: str | None = public("The function that its jobs call.")
    priority: int | None = public("The priority of its jobs.")
    queue: str | None = public("The queue of its jobs.", column="QUEUE")
    misfire: str | None = public("What happens to ticks that no scheduler ran in time: `latest`, `all` or `skip`.")
    misfire_grace: float | None = public("How late a tick may be and still run.", unit="seconds")
    overlap: str | None = public("What happens to a tick while the last job has not ended: `allow`, `skip` or `queue`.")
    jitter: float | None = public("The largest random delay of a tick.", unit="seconds")
    state: Literal["active", "paused", "ended", "waits", "error"] = public("`waits`: the clock was set back.", column="STATE")
    next: datetime | None = public("The first undecided tick; it is in the past until a scheduler handles it.", column="NEXT")
    last: datetime | None = public("The last tick that was decided.", column="LAST")
    mark: datetime | None = public("Up to when ticks are decided.")
    last_job: EntryJobView | None = public("The job of the last tick.", column="JOB")
    manual_job: EntryJobView | None = public("The last job that was run by hand.")
    app: str | None = public("The app that declares it; null if it was made at run time.", column="DECLARED BY")
    version: str | None = public("The version of that app.")
    declared_at: datetime | None = public("When it was declared.")
    paused: datetime | None = public("Since when it is paused.")
    errors: list[str] = public("Why it can't run.")
    faults: list[str] = public("Why it could not be declared so again.")
    enqueued: int = public("Ticks whose jobs were enqueued.", column="ENQUEUED")
    missed: int = public("Ticks that no scheduler ran in time.", column="MISSED")
    overlapped: int = public("Ticks that were skipped because a job had not ended.", column="OVERLAPPED")

    @classmethod
    def of(cls, found: EntryState, jobs: Mapping[str, LastJob], **more: Any) -> Self:
        """Make the view of an entry. `jobs`: the states of the jobs that it names; `more`: the fields of a larger view."""
        info, entry = found.info, found.entry
        policy = ("queue", "misfire", "misfire_grace", "overlap", "jitter")
        return cls(
            id=info.id,
            when=entry.plan.text if entry else None,
            words=_words(entry.plan) if entry else None,
            plan=json.loads(entry.plan.to_json()) if entry else None,
            function=entry.func_name if entry else None,
            priority=entry.job.priority if entry else None,
            **{name: getattr(entry, name, None) for name in policy},
            state=found.state,
            next=_time(found.next),
            last=_time(found.last),
            mark=_time(info.mark),
            last_job=_job(jobs.get(info.last_job)),
            manual_job=_job(jobs.get(info.manual_job)),
            app=info.app or None,
            version=info.version or None,
            declared_at=info.declared_at,
            paused=info.paused,
            errors=list(found.problems),
            faults=entry.faults() if entry else [],
            enqueued=info.enqueued,
            missed=info.missed,
            overlapped=info.overlapped,
            **more,
        )


def _words(plan: Plan) -> str | None:
    from fusion.cron.words import in_words

    return in_words(plan) or None


def _job(job: LastJob | None) -> EntryJobView | None:
    return None if job is None else EntryJobView(id=job.id, status=job.status)


def _time(tick: int | None) -> datetime | None:
    return None if tick is None else instant(tick)


@part
class TickView(View):
    """A future tick."""

    local: str = public("Its local time in the entry's zone.")
    utc: datetime = public("When it is.")
    note: str | None = public("How a change to or from summer time affects it.")

    @classmethod
    def of(cls, plan: Plan, tick: int) -> Self:
        """Make the view of a tick of this plan."""
        return cls(local=plan.local(tick).isoformat(), utc=instant(tick), note=plan.note(tick) or None)


@part
class DecisionView(View):
    """The outcome of a tick."""

    tick: datetime = public("The tick.")
    at: datetime = public("When it was decided.")
    late: float | None = public("How late the decision was; null if it was run by hand.", unit="seconds")
    outcome: str = public("`enqueued`, `overlap`, `missed`, `exists`, `taken` or `manual`.")
    missed: int | None = public("How many ticks were missed together.")
    job: str | None = public("The job that was enqueued, or that prevented it.")
    status: str | None = public("The state of that job.")

    @classmethod
    def of(cls, one: TickDecision, jobs: Mapping[str, LastJob]) -> Self:
        """Make the view of a decision. `jobs`: the states of the jobs that decisions name."""
        job, at_hand = jobs.get(one.what), one.outcome == "manual"
        return cls(
            tick=one.tick,
            at=one.at,
            late=None if at_hand else (one.at - one.tick).total_seconds(),
            outcome=one.outcome,
            missed=int(one.what) if one.outcome == "missed" else None,
            job=job.id if job else None,
            status=job.status if job else None,
        )


@view
class CronEntryView(CronEntryListedView):
    """A cron entry with its next ticks and last decisions."""

    coming: list[TickView] = public("Its next ticks.")
    decisions: list[DecisionView] = public("The outcomes of its last ticks, the newest first.")


@view
class CronEntriesView(View):
    """All cron entries."""

    schedulers: list[str] = public("The schedulers that are alive.")
    entries: list[CronEntryListedView] = public("By id.")

    @classmethod
    def of(cls, schedulers: list[str], found: Iterable[EntryState], jobs: Mapping[str, LastJob]) -> Self:
        """Make the view of these entries."""
        return cls(schedulers=schedulers, entries=[CronEntryListedView.of(one, jobs) for one in found])


@view
class CronRunView(View):
    """A job that was run by hand."""

    id: str = public("The entry.")
    job_id: str = public("The job.")


@view
class CronPausedView(View):
    """A cron entry that was paused or resumed."""

    id: str = public("The entry.")
    paused: bool = public("Whether it is paused now.")


@view
class CronRemovedView(View):
    """A cron entry that was removed."""

    id: str = public("The entry.")
    removed: bool = public("True.")
    declared_by: str | None = public("The app that declares it, and so brings it back.")
