"""Parts of the view of one job: its run, timeline, keys, related jobs, callbacks and events."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from fusion.callbacks import shown_url
from fusion.events.wording import message_of, whole_of
from fusion.jobs.wording import ending, retries
from fusion.kernel import defaults
from fusion.kernel.redaction import UNREADABLE, cut, masked_text, printable
from fusion.store.layout.codec import number
from fusion.store.read.event_inspector import moment_of
from fusion.views.base import ABSENT, Unmasked, View, details, masked, part, public
from fusion.views.job import OnFailure

if TYPE_CHECKING:
    from typing import Self

    from fusion.jobs.attempts import Attempt
    from fusion.jobs.sheet import Sheet
    from fusion.jobs.waiting import Wait
    from fusion.kernel.progress import Progress
    from fusion.store.read.callback_inspector import DeliveryInfo
    from fusion.store.read.job_facts import Kin
    from fusion.store.write.event_broker import StreamEntry

#: Most bytes of a result or a reason that are shown.
CUT = 4096
_CLASS = re.compile(r"[A-Za-z_][\w.]{0,200}", re.ASCII)
_POLICIES: dict[str, OnFailure] = {"": "fail", "?": "ignore", "~": "wait"}


def _line(said: str, limit: int) -> str:
    return printable(cut(said, limit))


@part
class WaitView(View):
    """Something that a job waits for."""

    code: str = public("The cause, as a code for programs.")
    text: str = public("The cause in a sentence.")
    ahead: int | None = public("Jobs that come before it.")
    until: datetime | None = public("When this ends by itself.")

    @classmethod
    def of(cls, wait: Wait) -> Self:
        """Make the view."""
        return cls(code=wait.code, text=wait.text, ahead=wait.ahead, until=wait.until)


@part
class RunNowView(View):
    """The current run."""

    worker: str | None = public("The worker.")
    worker_alive: bool = public("Whether its worker is alive.")
    since: datetime | None = public("When the run started.")
    seconds: float | None = public("How long it has run.", unit="seconds")
    timeout: float | None = public("How long it may run; null for no limit.", unit="seconds")
    used: float | None = public("The share of that time that has passed.")
    lease_until: datetime | None = public("When its claim ends, unless it is renewed.")
    lease_left: float | None = public("How long that is from now.", unit="seconds")
    ahead: bool = public("Whether it waits in a process behind another job.")
    told: str | None = public("A pending command for its worker: `cancel` or `stop`.")

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
    """A state that a job has been in."""

    at: datetime = public("When the job entered it.")
    state: str = public("The state.")
    seconds: float | None = public("How long it stayed; null for the state that it is in.", unit="seconds")
    worker: str | None = public("The worker.")
    cause: str | None = public("The cause, in a word.")
    source: Literal["event", "record"] = public("The source of this step.", name="from")
    why: str | None = details("The reason: that of the event, or masked.")

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
    """The states that a job has been in."""

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
    oom_likely: bool = public("Whether its process was probably killed because memory was short.")
    peak_memory: int | None = public("The peak memory of its process.", unit="bytes")
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
    """The retries of a job."""

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
    """A related job."""

    id: str = public("The job.")
    status: str = public("Its state; `gone` if there is no record of it.")
    queue: str | None = public("Its queue.")
    function: str | None = public("The function that it calls.")

    @classmethod
    def of(cls, one: Kin, **more: Any) -> Self:
        """Make the view. `more`: the fields of a larger view."""
        return cls(id=one.id, status=one.status or "gone", queue=one.queue or None, function=one.function or None, **more)


@part
class ParentKinView(KinView):
    """A job that this one waits for, or waited for."""

    on_failure: OnFailure = public("What happens to this job if that one does not finish.")
    waited_for: bool = public("Whether this job still waits for it.")


@part
class ParentsView(View):
    """Jobs that a job waits for, or waited for."""

    total: int = public("How many there are.")
    more: bool = public("Whether there are more than this count.")
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

    key: str | None = masked("The key, masked: it may identify a person.", masked_text, unless=["operate"])
    until: str = public("When the job gives it back: `end`, `start` ...")
    window: float | None = public("How long the job keeps it at least.", unit="seconds")
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
    """Time limits of a job."""

    timeout: float | None = public("How long it may run; null for no limit.", unit="seconds")
    ttl: float | None = public("After how long it expires if it has not started.", unit="seconds")
    expires_at: datetime | None = public("When it expires.")
    result_ttl: float | None = public("How long it is kept once it has finished.", unit="seconds")
    failure_ttl: float | None = public("How long it is kept once it has failed.", unit="seconds")
    kept_until: datetime | None = public("When its record is removed.")

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
    answer: str | None = details("The result of the last try.", how=masked_text)

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
    delivery: JobDeliveryView | None = public("The delivery, if the job's last end names one.")


def callbacks_of(sheet: Sheet, with_details: bool) -> list[JobCallbackView]:
    """Return the callbacks of a job: first those in Python, then those to URLs, each with its delivery if one was sent."""
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

    bytes: int = public("The whole record.", unit="bytes")
    too_large: list[str] = public("Fields that were not read because they are too large.")


@part
class JobEventView(View):
    """An event of a job, as far as the stream still has it."""

    at: datetime = public("When it happened.")
    event: str = public("The event.")
    worker: str | None = public("The worker.")
    attempts: int | None = public("Runs that had failed before.")
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
    """The progress that a job reports."""

    done: float = public("The amount that is done.")
    total: float | None = public("The whole amount; null if unknown.")
    at: datetime | None = public("When it reported this.")
    note: str | None = details("A note that it adds.")

    @classmethod
    def of(cls, far: Progress | None, with_note: bool) -> Self | None:
        """Make the view; None for a job that reports no progress."""
        return far and cls(done=far.done, total=far.total, at=far.at, note=far.note if with_note else ABSENT)  # type: ignore[return-value]


@part
class TraceView(View):
    """The traceback of the last failed run, masked."""

    lines: list[str] = public("The last lines.")
    of: int = public("How many lines there are.")


@part
class LogLineView(View):
    """A line that a job printed or logged."""

    at: datetime = public("When.")
    text: str = public("The line, masked.")


@part
class LogView(View):
    """The last lines that a run of the job printed and logged."""

    lines: list[LogLineView] = public("The lines, the oldest first.")
    left_out: int = public("Lines before these.")
    attempt: int = public("The number of the attempt whose run it was.")

    @classmethod
    def of(cls, sheet: Sheet) -> Self | None:
        """Make the view; None for a job without a log."""
        log = sheet.facts.log
        if log is None:
            return None
        lines = [LogLineView(at=at, text=_line(text, defaults.LOG_LINE)) for at, text in log.lines]
        return cls(lines=lines, left_out=log.left_out, attempt=log.attempt)


@part
class CutView(View):
    """A text as it is stored."""

    text: str = public("The text; of a long one the beginning.")
    bytes: int = public("How long all of it is.", unit="bytes")
    cut: bool = public("Whether that is more than is shown.")


def cut_of(raw: bytes | None, limit: int = CUT) -> CutView | None:
    """Return the text, cut, as it is stored; it may be a pickle. None without a text."""
    if raw is None:
        return None
    return CutView(text=raw[:limit].decode("utf-8", "replace"), bytes=len(raw), cut=len(raw) > limit)


@part
class RunView(View):
    """A run that did not finish, with its full error."""

    outcome: str = public("How it ended, in a word.")
    started_at: datetime | None = public("When it started.")
    ended_at: datetime | None = public("When it ended.")
    worker: str = public("The worker.")
    error: CutView | None = public("What the error said.")

    @classmethod
    def of(cls, attempt: Attempt, error: str) -> Self:
        """Make the view of an attempt."""
        shown = cut_of(error.encode("utf-8", "backslashreplace")) if error else None
        return cls(outcome=attempt.outcome, started_at=attempt.start, ended_at=attempt.end, worker=attempt.worker, error=shown)
