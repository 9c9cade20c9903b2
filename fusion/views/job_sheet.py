"""All that is known of one job, as all places show it. `job` has the sizes of lists."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, cast

from fusion.callbacks import shown_url
from fusion.events.wording import message_of, whole_of
from fusion.exceptions import DeserializationError
from fusion.jobs import sheet_texts
from fusion.jobs.sheet import sheet as read_sheet
from fusion.jobs.wording import ending, retries
from fusion.kernel.compression import plain
from fusion.kernel.redaction import UNREADABLE, cut, masked_text, printable
from fusion.kernel.scope import EVERYTHING
from fusion.store.layout.codec import number, text
from fusion.store.read.event_inspector import moment_of
from fusion.views.base import ABSENT, Unmasked, View, details, masked, part, public, view
from fusion.views.job import ErrorView, OnFailure

if TYPE_CHECKING:
    from typing import Self

    from fusion.jobs.attempts import Attempt
    from fusion.jobs.sheet import Sheet
    from fusion.jobs.waiting import Wait
    from fusion.kernel.progress import Progress
    from fusion.kernel.scope import Scope
    from fusion.store.read.callback_inspector import DeliveryInfo
    from fusion.store.read.job_facts import Kin
    from fusion.store.read.sheet_inspector import SheetInspector
    from fusion.store.write.event_broker import StreamEntry

#: Bytes of a result or a reason that are shown.
CUT = 4096
_CLASS = re.compile(r"[A-Za-z_][\w.]{0,200}", re.ASCII)
_POLICIES: dict[str, OnFailure] = {"": "fail", "?": "ignore", "~": "wait"}


def _line(said: str, limit: int) -> str:
    return printable(cut(said, limit))


@part
class WaitView(View):
    """Something that a job waits for."""

    code: str = public("What it is, for programs.")
    text: str = public("The same in a sentence.")
    ahead: int | None = public("Jobs that come before it.")
    until: datetime | None = public("When this ends by itself.")

    @classmethod
    def of(cls, wait: Wait) -> Self:
        """Make the view."""
        return cls(code=wait.code, text=wait.text, ahead=wait.ahead, until=wait.until)


@part
class RunNowView(View):
    """The run that goes on."""

    worker: str | None = public("The worker.")
    worker_alive: bool = public("Whether it lives.")
    since: datetime | None = public("When the run started.")
    seconds: float | None = public("How long it has run.", unit="seconds")
    timeout: float | None = public("How long it may run; null for no limit.", unit="seconds")
    used: float | None = public("The share of that time that is over.")
    lease_until: datetime | None = public("When its claim ends, unless it is renewed.")
    lease_left: float | None = public("How long that is from now.", unit="seconds")
    ahead: bool = public("Whether it waits behind another job in a process.")
    told: str | None = public("What the worker has to do: `cancel` or `stop`.")

    @classmethod
    def of(cls, sheet: Sheet) -> Self | None:
        """Make the view; None for a job that does not run."""
        run = sheet.facts.run
        if run is None:
            return None
        started, limit = sheet.started_at, sheet.timeout
        seconds = None if started is None else max(0.0, (sheet.at - started).total_seconds())
        return cls(
            worker=sheet.worker_name or None,
            worker_alive=run.worker is not None and run.worker.alive,
            since=started,
            seconds=seconds,
            timeout=limit if limit >= 0 else None,
            used=None if seconds is None or limit <= 0 else round(seconds / limit, 4),
            lease_until=run.lease_until,
            lease_left=None if run.lease_until is None else (run.lease_until - sheet.at).total_seconds(),
            ahead=run.ahead,
            told={"1": "cancel", "stop": "stop"}.get(sheet._text("cancel")),
        )


@part
class StepView(View):
    """A state that a job came through."""

    at: datetime = public("When it came into it.")
    state: str = public("The state.")
    seconds: float | None = public("How long it stayed; null for the state that it is in.", unit="seconds")
    worker: str | None = public("The worker.")
    cause: str | None = public("The cause, in a word.")
    source: Literal["event", "record"] = public("Where this is known from.", name="from")
    why: str | None = details("Why, as the event says it, or masked.")

    @classmethod
    def of(cls, sheet: Sheet, nth: int, with_details: bool) -> Self:
        """Make the view of a step."""
        step = sheet.steps[nth]
        why = (_line(step.why, 1024) if step.told else masked_text(step.why)) or None
        return cls(
            at=step.at,
            state=step.state,
            seconds=None if nth == len(sheet.steps) - 1 else step.seconds,
            worker=step.worker or None,
            cause=_line(step.cause, 200) or None,
            source="event" if step.told else "record",
            why=why if with_details else ABSENT,
        )


@part
class TimelineView(View):
    """The states that a job came through."""

    steps: list[StepView] = public("The first one first.")
    complete: bool = public("Whether none is missing.")


@part
class TryView(View):
    """A run that did not finish."""

    outcome: str = public("How it ended, in a word.")
    started_at: datetime | None = public("When it started.")
    ended_at: datetime | None = public("When it ended.")
    seconds: float | None = public("How long it ran.", unit="seconds")
    worker: str = public("The worker.")
    error_class: str | None = public("The class of its error.")
    signal: int | None = public("The signal that its process died of.")
    exit_code: int | None = public("The exit code of its process.")
    ending: str | None = public("How its process ended, in words.")
    oom_likely: bool = public("Whether its process was probably killed for want of memory.")
    peak_memory: int | None = public("The most memory that its process had.", unit="bytes")
    error: str | None = details("What the error said.", how=masked_text)

    @classmethod
    def of(cls, attempt: Attempt, with_details: bool) -> Self:
        """Make the view of an attempt."""
        took = None if attempt.start is None or attempt.end is None else max(0.0, (attempt.end - attempt.start).total_seconds())
        kind = attempt.error.partition(":")[0]
        return cls(
            outcome=_line(attempt.outcome, 40),
            started_at=attempt.start,
            ended_at=attempt.end,
            seconds=took,
            worker=attempt.worker,
            error_class=kind if _CLASS.fullmatch(kind) else None,
            signal=attempt.signal,
            exit_code=attempt.exit_code,
            ending=ending(attempt) or None,
            oom_likely=attempt.oom_likely,
            peak_memory=attempt.maxrss and attempt.maxrss * 1024,
            error=(attempt.error or None) if with_details else ABSENT,
        )


@part
class RetryView(View):
    """How a job is tried again."""

    policy: str = public("The policy in words.")
    left: int | None = public("Retries that are left.")
    next_at: datetime | None = public("When the next one is due.")

    @classmethod
    def of(cls, sheet: Sheet) -> Self:
        """Make the view."""
        words, left = retries(sheet.facts.row)
        waits = sheet.status == "scheduled" and (sheet.attempts or sheet.lost)
        return cls(policy=printable(words), left=left, next_at=sheet.facts.due if waits else None)


@part
class KinView(View):
    """Another job that this one is bound to."""

    id: str = public("The job.")
    status: str = public("Its state; `gone` if there is no record of it.")
    queue: str | None = public("Its queue.")
    function: str | None = public("The function that it calls.")

    @classmethod
    def of(cls, one: Kin, **more: Any) -> Self:
        """Make the view. `more`: the fields of a larger size."""
        return cls(id=one.id, status=one.status or "gone", queue=one.queue or None, function=one.function or None, **more)


@part
class ParentKinView(KinView):
    """A job that this one waits for, or waited."""

    on_failure: OnFailure = public("What happens to this job should that one not finish.")
    waited_for: bool = public("Whether it waits still.")


@part
class ParentsView(View):
    """Jobs that a job waits for, or waited."""

    total: int = public("How many there are.")
    more: bool = public("Whether there are more than are counted.")
    jobs: list[ParentKinView] = public("Some of them.")

    @classmethod
    def of(cls, sheet: Sheet) -> Self:
        """Make the view."""
        facts, seen, all_ = sheet.facts, sheet.seen(*sheet.facts.parents), sheet.scope.all
        jobs = [ParentKinView.of(one, on_failure=_POLICIES.get(one.sign, "fail"), waited_for=one.unmet) for one in seen]
        return cls(total=facts.parents_count if all_ else len(seen), more=facts.more_parents and all_, jobs=jobs)


@part
class ChildrenView(View):
    """Jobs that wait for a job, or waited."""

    total: int = public("How many there are.")
    jobs: list[KinView] = public("Some of them.")

    @classmethod
    def of(cls, sheet: Sheet) -> Self:
        """Make the view."""
        seen = sheet.seen(*sheet.facts.children)
        total = sheet.facts.children_count if sheet.scope.all else len(seen)
        return cls(total=total, jobs=[KinView.of(one) for one in seen])


@part
class JobLimitsView(View):
    """The concurrency key of a job."""

    key: str = public("The key.")
    max_concurrent: int | None = public("How many of its jobs may run at once; null for any number.")
    rate: str | None = public("How many of its jobs may start in a time, like `100/60s`.")
    has_slot: bool = public("Whether this job has a slot.")
    held: int | None = public("Slots that are taken; null to a token for some queues.")
    waiting: int | None = public("Jobs that wait for a slot; null to a token for some queues.")
    ahead: int | None = public("Jobs that get a slot before it; null to a token for some queues.")
    paused: bool = public("Whether none of its jobs is started.")
    holders: list[KinView] = public("Some of the jobs that have a slot.")

    @classmethod
    def of(cls, sheet: Sheet) -> Self | None:
        """Make the view; None for a job without a key."""
        key = sheet.facts.key
        if key is None:
            return None
        limit, all_ = key.limit, sheet.scope.all
        return cls(
            key=limit.key,
            max_concurrent=limit.max_concurrent,
            rate=str(limit.rate) if limit.rate else None,
            has_slot=key.has_slot,
            held=key.held if all_ else None,
            waiting=key.waiting if all_ else None,
            ahead=key.ahead if all_ else None,
            paused=limit.paused_until > sheet.at.timestamp(),
            holders=[KinView.of(one) for one in sheet.seen(*key.holders)],
        )


@part
class UniqueView(View):
    """The unique key of a job."""

    key: str | None = masked("The key, masked: it may hold whose job it is.", masked_text, unless=["operate"])
    until: str = public("Until when it is the job's: `end`, `start` ...")
    window: float | None = public("For how long at least.", unit="seconds")
    has_it: bool = public("Whether this job has it.")
    holder: str | None = public("The job that has it.")
    free_in: float | None = public("When it is free at the latest.", unit="seconds")

    @classmethod
    def of(cls, sheet: Sheet, with_details: bool) -> Self | None:
        """Make the view; None for a job without a key."""
        if not sheet.unique_key:
            return None
        holder = sheet.facts.unique_holder
        known = sheet.facts.others.get(holder)
        seen = holder if known is not None and sheet.seen(known) else None
        window = number(sheet.facts.row.get("unique_window"))
        return cls(
            key=Unmasked(sheet.unique_key) if with_details else sheet.unique_key,
            until=sheet._text("unique_until") or "end",
            window=window / 1000 if window else None,
            has_it=holder == sheet.id,
            holder=seen,
            free_in=sheet.facts.unique_left_ms / 1000 if seen and sheet.facts.unique_left_ms else None,
        )


@part
class JobBatchView(View):
    """The batch of a job."""

    id: str = public("The batch.")
    name: str | None = public("Its name.")
    state: str = public("`open`, `closed`, `canceled`, `ended` or `gone`.")
    role: str = public("`member`, or after which end of the batch the job follows.", name="is")

    @classmethod
    def of(cls, sheet: Sheet) -> Self | None:
        """Make the view; None for a job without one, and to a token for some queues: a batch may span others."""
        batch = sheet._text("batch")
        if not batch or not sheet.scope.all:
            return None
        known = sheet.facts.batch
        state = next((word for word in ("canceled", "ended", "closed") if f"{word}_at" in known), "open" if known else "gone")
        return cls(id=batch, name=known.get("name") or None, state=state, role=sheet._text("batch_as") or "member")


@part
class TimesView(View):
    """Times that a job was given."""

    timeout: float | None = public("How long it may run; null for no limit.", unit="seconds")
    ttl: float | None = public("After how long it expires if it has not started.", unit="seconds")
    expires_at: datetime | None = public("When that is.")
    result_ttl: float | None = public("How long it is kept once it has finished.", unit="seconds")
    failure_ttl: float | None = public("How long it is kept once it has failed.", unit="seconds")
    kept_until: datetime | None = public("When it is forgotten.")

    @classmethod
    def of(cls, sheet: Sheet) -> Self:
        """Make the view."""
        facts = sheet.facts
        timeout = number(facts.row.get("queue_timeout"))
        return cls(
            timeout=sheet.timeout if sheet.timeout >= 0 else None,
            ttl=_figure(sheet._text("ttl")) or (timeout / 1000 if timeout else None),
            expires_at=None if sheet.ended else facts.moment("expires_at"),
            result_ttl=_figure(sheet._text("result_ttl")),
            failure_ttl=_figure(sheet._text("failure_ttl")),
            kept_until=facts.kept_until if sheet.ended else None,
        )


def _figure(stored: str) -> float | None:
    try:
        found = float(stored)
    except ValueError:
        return None
    return found if abs(found) < 1e15 else None


@part
class JobDeliveryView(View):
    """The delivery of a callback of a job."""

    id: str = public("The delivery.")
    status: str = public("How far it is.")
    tries: int = public("How often it was tried.")
    next_at: datetime | None = public("When it is tried next.")
    answer: str | None = details("What the last try came to.", how=masked_text)

    @classmethod
    def of(cls, sent: DeliveryInfo, with_details: bool) -> Self:
        """Make the view."""
        answer = (sent.answer or None) if with_details else ABSENT
        return cls(id=sent.id, status=sent.status, tries=sent.tries, next_at=sent.next_at, answer=answer)


@part
class JobCallbackView(View):
    """A callback of a job: a function, or a URL."""

    on: str = public("After which end it is called: `success`, `failure`, `stopped` or `end`.")
    function: str | None = public("The function.")
    url: str | None = masked("The host of the URL; the rest may hold a token.", shown_url)
    delivery: JobDeliveryView | None = public("The delivery, as far as the job's last end names it.")


def _callbacks(sheet: Sheet, with_details: bool) -> list[JobCallbackView]:
    found = [
        JobCallbackView(on=event, function=_function(raw), url=None, delivery=None)
        for event in ("success", "failure", "stopped")
        if (raw := sheet._text(f"on_{event}"))
    ]
    for event, name in (("success", "success_task_handler"), ("failure", "failed_task_handler"), ("end", "callback_url")):
        if url := sheet._text(name):
            sent = next((one for one in sheet.facts.deliveries if one.url == url), None)
            delivery = JobDeliveryView.of(sent, with_details) if sent else None
            found.append(JobCallbackView(on=event, function=None, url=url, delivery=delivery))
    return found


def _function(raw: str) -> str:
    import json

    try:
        named = json.loads(raw)
        name = named["func"] if isinstance(named, dict) else named
        return printable(cut(str(name), 200))
    except (ValueError, KeyError, RecursionError):
        return UNREADABLE


@part
class SignatureView(View):
    """The signature of a job."""

    state: Literal["signed", "unsigned", "bad", "unchecked"] = public("`unchecked`: this process has no keys.")
    why: str | None = public("What is wrong with it.")


@part
class SizeView(View):
    """The size of a job's record."""

    bytes: int = public("All of it.", unit="bytes")
    too_large: list[str] = public("Fields that are not read, as they are too large.")


@part
class JobEventView(View):
    """An event of a job, as far as the stream still has it."""

    at: datetime = public("When it happened.")
    event: str = public("The event.")
    worker: str | None = public("The worker.")
    attempts: int | None = public("Runs that had failed by then.")
    log: bool = public("Whether the task wrote it by `Log`.")
    message: str | None = details("The message of the event.")

    @classmethod
    def of(cls, entry: StreamEntry, with_details: bool) -> Self:
        """Make the view. The stream holds neither arguments nor what errors said."""
        fields = entry.fields
        return cls(
            at=moment_of(entry.id),
            event=_line(fields.get("event", ""), 40),
            worker=_line(fields.get("worker", ""), 200) or None,
            attempts=whole_of(fields, "attempts"),
            log=fields.get("source") == "log",
            message=_line(message_of(fields), 1024) if with_details else ABSENT,
        )


@part
class JobEventsView(View):
    """Events of a job."""

    entries: list[JobEventView] = public("The oldest first.")
    complete: bool = public("Whether none is missing.")


@part
class ProgressView(View):
    """How far a job says it is."""

    done: float = public("How much is done.")
    total: float | None = public("Of how much; null if it does not know.")
    at: datetime | None = public("When it said so.")
    note: str | None = details("What it says besides.")

    @classmethod
    def of(cls, far: Progress | None, with_note: bool) -> Self | None:
        """Make the view; None for a job that says nothing."""
        return far and cls(done=far.done, total=far.total, at=far.at, note=far.note if with_note else ABSENT)  # type: ignore[return-value]


@part
class TraceView(View):
    """The traceback of the last failed run, masked."""

    lines: list[str] = public("The last lines.")
    of: int = public("How many lines there are.")


@part
class CutView(View):
    """A text as it is stored."""

    text: str = public("The text, at most 4 KiB of it.")
    bytes: int = public("How long all of it is.", unit="bytes")
    cut: bool = public("Whether that is more than is shown.")


def _cut(raw: bytes | None) -> CutView | None:
    """A text may be cut anywhere, and may be a pickle."""
    if raw is None:
        return None
    return CutView(text=raw[:CUT].decode("utf-8", "replace"), bytes=len(raw), cut=len(raw) > CUT)


@part
class RunView(View):
    """A run that did not finish, with its error as it was."""

    outcome: str = public("How it ended, in a word.")
    started_at: datetime | None = public("When it started.")
    ended_at: datetime | None = public("When it ended.")
    worker: str = public("The worker.")
    error: CutView | None = public("What the error said.")

    @classmethod
    def of(cls, attempt: Attempt) -> Self:
        """Make the view of an attempt."""
        error = _cut(attempt.error.encode()) if attempt.error else None
        return cls(outcome=attempt.outcome, started_at=attempt.start, ended_at=attempt.end, worker=attempt.worker, error=error)


@view
class JobView(View):
    """All that is known of a job."""

    id: str = public("Its id.")
    status: str = public("Its state.")
    queue: str = public("Its queue.")
    original_queue: str = public("The queue that it was enqueued to.")
    function: str | None = public("The function that it calls; null if that can't be read.")
    priority: int = public("Its priority.")
    log_tag: str = public("Its log tag.")
    concurrency_key: str | None = public("The key that it shares a limit with.")
    fair_key: str | None = masked(
        "The key that it takes turns by, masked: it may hold whose it is.", masked_text, unless=["operate"]
    )
    created_at: datetime | None = public("When it was made.")
    enqueued_at: datetime | None = public("When it came into its queue.")
    scheduled_at: datetime | None = public("When it is due, if it waits for a time.")
    started_at: datetime | None = public("When its last run started.")
    ended_at: datetime | None = public("When it ended.")
    state_since: datetime | None = public("When it came into its state.")
    last_updated: datetime = public("When this was read, by Redis's clock.")
    attempts: int = public("Runs that failed.")
    lost: int = public("Runs that were lost with their process, since the last outcome.")
    deliveries: int = public("How often a worker got it.")
    retry_count: int = public("7, and one more for each retry.")
    worker: str = public("The worker that runs it, or ran it last.")
    quarantined: bool = public("Whether it was set aside.")
    error: ErrorView | None = public("Its last error.")
    progress: ProgressView | None = public("How far it says it is.")
    waits: list[WaitView] = public("What it waits for, what comes first in front.")
    run: RunNowView | None = public("The run that goes on.")
    timeline: TimelineView = public("The states that it came through.")
    tries: list[TryView] = public("Runs that did not finish, the last ten.")
    retry: RetryView = public("How it is tried again.")
    limits: JobLimitsView | None = public("Its concurrency key.")
    unique: UniqueView | None = public("Its unique key.")
    parents: ParentsView = public("Jobs that it waits for, or waited.")
    children: ChildrenView = public("Jobs that wait for it, or waited.")
    batch: JobBatchView | None = public("Its batch.")
    in_chain: bool = public("Whether it is given what the step before it returned.")
    cron: str | None = public("The cron entry that it is of.", record="cron")
    failure_group: str | None = public("The failure group that it is in.", record="failure_group")
    copied_from: str | None = public("The job that it is an edited copy of.")
    copied_to: list[str] = public("Edited copies of it.")
    replaces: str | None = public("The job that it took the place of.")
    replaced_by: str | None = public("The job that took its place.")
    times: TimesView = public("Times that it was given.")
    callbacks: list[JobCallbackView] = public("What is called after its end.")
    signature: SignatureView = public("Its signature.")
    size: SizeView = public("The size of its record.")
    events: JobEventsView = public("Its events, as far as the stream still has them.")
    # what it is about
    description: str | None = details("Its description, if that is not the function.", how=masked_text)
    arguments: str | None = details("Its arguments as JSON, masked.")
    meta: str | None = details("Its meta as JSON, masked.")
    cursor: str | None = details("Where it goes on, as JSON, masked.")
    returned: str | None = details("What it returned, as JSON, masked.")
    reason_text: str | None = details("What its last error said, masked.", how=masked_text)
    result_error: str | None = details("Why its result could not be kept, masked.", how=masked_text)
    callback_error_text: str | None = details("What its callback raised, masked.", how=masked_text)
    quarantined_for: str | None = details("Why it was set aside, masked.", how=masked_text)
    trace: TraceView = details("The traceback of its last failed run, masked.")
    reason: CutView | None = details("What its last error said, as it is.")
    result: CutView | None = details("What it returned, as it is.")
    callback_error: CutView | None = details("What its callback raised, as it is.")
    runs: list[RunView] = details("Runs that did not finish, with their errors as they are.")

    @classmethod
    def of(cls, sheet: Sheet, *, about: bool = False, trace: bool = False, raw: bool = False) -> Self:
        """Make the view of a job. `about`: with what it is about, masked, and the last lines of its traceback; `trace`: with all of those; `raw`:
        with its result, its reason, what its callback raised and its earlier runs, as they are."""
        facts = sheet.facts
        kept: dict[str, Any] = {}
        if about:
            kept |= _about(sheet)
        if about or trace:
            lines = sheet_texts.trace_lines(sheet)
            kept["trace"] = TraceView(lines=lines[-(sheet_texts.WHOLE_TRACE if trace else sheet_texts.TRACE) :], of=len(lines))
        if raw:
            kept |= _raw(sheet)
        fair, signature = sheet._text("fair_key"), sheet.signature
        return cls(
            id=sheet.id,
            status=sheet.status,
            queue=sheet.origin,
            original_queue=sheet.original_queue,
            function=sheet.function or None,
            priority=sheet.priority,
            log_tag=sheet.log_tag,
            concurrency_key=sheet.concurrency_key or None,
            fair_key=(Unmasked(fair) if about else fair) if fair else None,
            created_at=sheet.created_at,
            enqueued_at=sheet.enqueued_at,
            scheduled_at=facts.due if sheet.status == "scheduled" else None,
            started_at=sheet.started_at,
            ended_at=sheet.ended_at,
            state_since=sheet.entered_at,
            last_updated=sheet.at,
            attempts=sheet.attempts,
            lost=sheet.lost,
            deliveries=sheet.deliveries,
            retry_count=sheet.retry_count,
            worker=sheet.worker_name,
            quarantined=bool(sheet.quarantined),
            error=ErrorView(kind=sheet.error_class, at=sheet.error_frame) if sheet.error_class else None,
            progress=ProgressView.of(sheet.progress, about or raw),
            waits=[WaitView.of(one) for one in sheet.waits],
            run=RunNowView.of(sheet),
            timeline=TimelineView(
                steps=[StepView.of(sheet, n, about) for n in range(len(sheet.steps))], complete=facts.all_events
            ),
            tries=[TryView.of(attempt, about) for attempt in sheet.attempt_history],
            retry=RetryView.of(sheet),
            limits=JobLimitsView.of(sheet),
            unique=UniqueView.of(sheet, about),
            parents=ParentsView.of(sheet),
            children=ChildrenView.of(sheet),
            batch=JobBatchView.of(sheet),
            in_chain="takes" in facts.row,
            copied_from=sheet.other("copied_from"),
            copied_to=[one.id for one in sheet.copies],
            replaces=sheet.other("replaces"),
            replaced_by=sheet.other("replaced_by"),
            times=TimesView.of(sheet),
            callbacks=_callbacks(sheet, about),
            signature=SignatureView(state=cast(Any, signature.state), why=signature.why or None),
            size=SizeView(bytes=sum(facts.sizes.values()), too_large=list(facts.too_large)),
            events=JobEventsView(entries=[JobEventView.of(entry, about) for entry in facts.events], complete=facts.all_events),
            **cls.recorded(facts.row),
            **kept,
        )


def _about(sheet: Sheet) -> dict[str, Any]:
    return {
        "description": sheet.description if sheet.description != sheet.function else None,
        "arguments": sheet_texts.arguments(sheet),
        "meta": sheet_texts.stored_json(sheet, "meta"),
        "cursor": sheet_texts.stored_json(sheet, "cursor"),
        "returned": sheet_texts.stored_json(sheet, "result"),
        "reason_text": sheet.reason or None,
        "result_error": text(sheet.facts.row.get("result_error")) or None,
        "callback_error_text": sheet.callback_error or None,
        "quarantined_for": sheet.quarantined or None,
    }


def _raw(sheet: Sheet) -> dict[str, Any]:
    row = sheet.facts.row
    return {
        "reason": _cut(row.get("reason")),
        "result": _cut(_uncompressed(row.get("result"))),
        "callback_error": _cut(row.get("callback_error")),
        "runs": [RunView.of(attempt) for attempt in reversed(sheet.attempt_history)],
    }


def _uncompressed(result: bytes | None) -> bytes | None:
    """A result that is damaged stays as it is stored."""
    try:
        return result and plain(result)
    except DeserializationError:
        return result


def read_job(inspector: SheetInspector, job_id: str, scope: Scope = EVERYTHING, *, stream: bool = True) -> Sheet:
    """Read all that is known of a job, and the fields of its record that `JobView` shows. As `jobs.sheet.sheet`."""
    return read_sheet(inspector, job_id, scope, stream=stream, more=JobView.records())
