"""The full view of one job, as every interface shows it. `fusion.views.job` has the smaller views for lists."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from fusion.exceptions import DeserializationError
from fusion.jobs import sheet_texts
from fusion.jobs.revealed import without_secrets
from fusion.jobs.sheet import sheet as read_sheet
from fusion.kernel.compression import plain
from fusion.kernel.redaction import masked_text
from fusion.kernel.scope import EVERYTHING
from fusion.store.layout.codec import text
from fusion.views.base import Unmasked, View, details, masked, public, view
from fusion.views.job import ErrorView
from fusion.views.job_parts import (
    ChildrenView,
    CutView,
    JobBatchView,
    JobCallbackView,
    JobEventsView,
    JobEventView,
    JobLimitsView,
    LogView,
    ParentsView,
    ProgressView,
    RetryView,
    RunNowView,
    RunView,
    SignatureView,
    SizeView,
    StepView,
    TimelineView,
    TimesView,
    TraceView,
    TryView,
    UniqueView,
    WaitView,
    callbacks_of,
    cut_of,
)

if TYPE_CHECKING:
    from typing import Self

    from fusion.jobs.sheet import Sheet
    from fusion.kernel.scope import Scope
    from fusion.store.read.sheet_inspector import SheetInspector


@view
class JobView(View):
    """All details of a job."""

    id: str = public("Its id.")
    status: str = public("Its state.")
    queue: str = public("Its queue.")
    original_queue: str = public("The queue that it was enqueued to.")
    function: str | None = public("The function that it calls; null if it can't be read.")
    priority: int = public("Its priority.")
    log_tag: str = public("Its log tag.")
    concurrency_key: str | None = public("Its concurrency key: jobs with the same key share a limit.")
    fair_key: str | None = masked(
        "Its fair key, by which jobs take turns; masked, because it may identify a person.", masked_text, unless=["operate"]
    )
    created_at: datetime | None = public("When it was made.")
    enqueued_at: datetime | None = public("When it entered its queue.")
    scheduled_at: datetime | None = public("When it is due, if it waits for a time.")
    started_at: datetime | None = public("When its last run started.")
    ended_at: datetime | None = public("When it ended.")
    state_since: datetime | None = public("When it entered its state.")
    last_updated: datetime = public("When this was read, by Redis's clock.")
    attempts: int = public("Runs that failed.")
    lost: int = public("Runs that were lost with their process, since the last outcome.")
    deliveries: int = public("How often a worker received it.")
    retry_count: int = public("It starts at 7, and each retry adds one.")
    worker: str = public("The worker that runs it, or ran it last.")
    quarantined: bool = public("Whether it was set aside.")
    error: ErrorView | None = public("Its last error.")
    progress: ProgressView | None = public("The progress that it reports.")
    waits: list[WaitView] = public("What it waits for, in the order in which that must happen.")
    run: RunNowView | None = public("The current run.")
    timeline: TimelineView = public("The states that it has been in.")
    tries: list[TryView] = public("Runs that did not finish, the last ten.")
    retry: RetryView = public("Its retries.")
    limits: JobLimitsView | None = public("Its concurrency key.")
    unique: UniqueView | None = public("Its unique key.")
    parents: ParentsView = public("Jobs that it waits for, or waited for.")
    children: ChildrenView = public("Jobs that wait for it, or waited.")
    batch: JobBatchView | None = public("Its batch.")
    in_chain: bool = public("Whether it receives the result of the step before it.")
    cron: str | None = public("The cron entry that made it.", record="cron")
    failure_group: str | None = public("The failure group that it is in.", record="failure_group")
    copied_from: str | None = public("The job that it is an edited copy of.")
    copied_to: list[str] = public("Edited copies of it.")
    replaces: str | None = public("The job that it replaced.")
    replaced_by: str | None = public("The job that replaced it.")
    times: TimesView = public("Its time limits.")
    callbacks: list[JobCallbackView] = public("What is called after its end.")
    signature: SignatureView = public("Its signature.")
    size: SizeView = public("The size of its record.")
    events: JobEventsView = public("Its events, as far as the stream still has them.")
    # its arguments, result and other data
    description: str | None = details("Its description, if that is not the function.", how=masked_text)
    arguments: str | None = details("Its arguments as JSON, masked.")
    meta: str | None = details("Its meta as JSON, masked.")
    cursor: str | None = details("Where its next run continues, as JSON, masked.")
    returned: str | None = details("What it returned, as JSON, masked.")
    reason_text: str | None = details("The message of its last error, masked.", how=masked_text)
    result_error: str | None = details("Why its result could not be kept, masked.", how=masked_text)
    callback_error_text: str | None = details("What its callback raised, masked.", how=masked_text)
    quarantined_for: str | None = details("Why it was set aside, masked.", how=masked_text)
    trace: TraceView = details("The traceback of its last failed run, masked.")
    log: LogView | None = details("What it printed and logged last; null if that is nothing, or is not kept.")
    reason: CutView | None = details("The message of its last error, unmasked.")
    result: CutView | None = details("What it returned, unmasked.")
    callback_error: CutView | None = details("What its callback raised, unmasked.")
    runs: list[RunView] = details("Runs that did not finish, with their errors unmasked.")

    @classmethod
    def of(cls, sheet: Sheet, *, about: bool = False, trace: bool = False, log: bool = False, raw: bool = False) -> Self:
        """Make the view of a job. `about`: with its data, masked, and the last lines of its traceback; `trace`: with the whole traceback;
        `log`: with its log; `raw`: with its result, its reason, its callback's error and its earlier runs, unmasked."""
        facts = sheet.facts
        kept: dict[str, Any] = {}
        if about:
            kept |= _about(sheet)
        if about or trace:
            lines = sheet_texts.trace_lines(sheet)
            kept["trace"] = TraceView(lines=lines[-(sheet_texts.WHOLE_TRACE if trace else sheet_texts.TRACE) :], of=len(lines))
        if log:
            kept["log"] = LogView.of(sheet)
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
            callbacks=callbacks_of(sheet, about),
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
        "reason": cut_of(row.get("reason")),
        "result": cut_of(_result(sheet)),
        "callback_error": cut_of(row.get("callback_error")),
        "runs": [RunView.of(attempt, attempt.error) for attempt in reversed(sheet.attempt_history)],
    }


def _result(sheet: Sheet) -> bytes | None:
    """Return the result uncompressed. A damaged result is returned as it is stored."""
    result = sheet.facts.row.get("result")
    try:
        return result and without_secrets(sheet, "result", plain(result))
    except DeserializationError:
        return result


def read_job(inspector: SheetInspector, job_id: str, scope: Scope = EVERYTHING, *, stream: bool = True) -> Sheet:
    """Read all details of a job, like `jobs.sheet.sheet`, with the fields of its record that `JobView` shows."""
    return read_sheet(inspector, job_id, scope, stream=stream, more=JobView.records())
