"""The states of a job in order, taken from the events still in the stream, and from its record where there are none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

from fusion.events.wording import seconds_of
from fusion.jobs.attempts import Attempt
from fusion.kernel.timeutil import from_iso
from fusion.status import TERMINAL
from fusion.store.layout.codec import number, text
from fusion.store.read.job_facts import JobFacts
from fusion.store.write.event_broker import StreamEntry

#: The state that each event leads to.
_STATES = {
    "queued": "queued",
    "scheduled": "scheduled",
    "deferred": "deferred",
    "processing": "started",
    "completed": "finished",
    "failed": "failed",
    "retry": "scheduled",
    "abandoned": "scheduled",
    "released": "queued",
    "displaced": "queued",
    "blocked": "blocked",
    "held": "blocked",
    "canceled": "canceled",
    "expired": "canceled",
    "stopped": "stopped",
}
#: Seconds within which an event and an entry of the record count as the same step.
_SAME = 1.0
#: Steps that are shown at most, the newest ones.
MOST = 100


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """A state that the job entered. `seconds`: how long it stayed; None for a final state. `why`: what led to it, in words that may quote an
    error; `cause`: the same as one of Fusion's own words. `told`: it comes from an event."""

    at: datetime
    state: str
    seconds: float | None = None
    worker: str = ""
    cause: str = ""
    why: str = ""
    told: bool = False


def timeline(facts: JobFacts, attempts: Sequence[Attempt]) -> list[TimelineStep]:
    """Return its states, oldest first; the last hundred at most."""
    told = [step for entry in facts.events if (step := _of_event(entry)) is not None]
    steps = [*told]
    left = [*told]
    for step in _of_record(facts, attempts):
        same = next((one for one in left if one.state == step.state and _apart(one, step) <= _SAME), None)
        if same is None:
            steps.append(step)
        else:
            left.remove(same)
    # the sort is stable: of steps at the same time, an end stays before the step that follows it
    steps.sort(key=lambda step: step.at)
    return _lasting(_once(steps), facts.at)[-MOST:]


def _apart(one: TimelineStep, other: TimelineStep) -> float:
    return abs((one.at - other.at).total_seconds())


def _once(steps: Iterable[TimelineStep]) -> Iterator[TimelineStep]:
    """Yield the steps without repetitions of the same state."""
    last: TimelineStep | None = None
    for step in steps:
        again = last is not None and step.state == last.state and step.at - last.at <= timedelta(seconds=_SAME)
        if again and (not step.told or step.cause == "due"):
            continue
        yield step
        last = step


def _lasting(steps: Iterable[TimelineStep], now: datetime) -> list[TimelineStep]:
    found = list(steps)
    ends = [*(step.at for step in found[1:]), now][: len(found)]
    last = len(found) - 1
    return [
        step if n == last and step.state in TERMINAL else replace(step, seconds=max(0.0, (end - step.at).total_seconds()))
        for n, (step, end) in enumerate(zip(found, ends, strict=True))
    ]


def _of_event(entry: StreamEntry) -> TimelineStep | None:
    fields = entry.fields
    event, reason = fields.get("event", ""), fields.get("reason", "")
    state = _STATES.get(event)
    if state is None:
        return None
    if event in ("retry", "abandoned") and not seconds_of(fields, "delay_ms", 1e3):
        state = "queued"
    if event == "failed" or event == "retry":
        cause, why = event, reason
    elif event in ("abandoned", "displaced", "released", "held", "canceled", "stopped"):
        cause, why = {"abandoned": "lost"}.get(event, event), reason
    else:
        cause, why = (event if event == "expired" else reason), ""
    at = _moment(fields.get("at_ms") or entry.id.partition("-")[0])
    return None if at is None else TimelineStep(at, state, None, fields.get("worker", ""), cause, why, True)


def _moment(ms: str) -> datetime | None:
    try:
        return datetime.fromtimestamp(int(ms) / 1000, timezone.utc) if ms.isascii() and len(ms) < 15 else None
    except (ValueError, OverflowError, OSError):
        return None


def _of_record(facts: JobFacts, attempts: Sequence[Attempt]) -> Iterator[TimelineStep]:
    """Yield the steps that the record itself holds: its arrival, its last runs, and its present state."""
    row = facts.row
    created, enqueued, started, ended = (
        from_iso(row.get(name)) for name in ("created_at", "enqueued_at", "started_at", "ended_at")
    )
    status = facts.status
    known = {attempt.start for attempt in attempts}
    if created is not None:
        yield TimelineStep(created, _first_state(facts), cause="enqueued")
    if enqueued is not None and created is not None and enqueued - created > timedelta(seconds=_SAME):
        yield TimelineStep(enqueued, "queued", cause="requeued" if number(row.get("requeued")) else "")
    for attempt in attempts:
        if attempt.start is not None:
            yield TimelineStep(attempt.start, "started", None, attempt.worker)
        if attempt.end is not None:
            final = (
                attempt is attempts[-1] and status in TERMINAL and attempt.outcome in ("failed", "canceled", "stopped", "lost")
            )
            after = status if final else {"retry": "scheduled", "finished": "finished"}.get(attempt.outcome, "queued")
            yield TimelineStep(attempt.end, after, None, "", attempt.outcome, attempt.error)
    if started is not None and started not in known and status in ("started", "finished"):
        yield TimelineStep(started, "started", None, text(row.get("worker_name")))
    if ended is not None and status in TERMINAL and not (attempts and attempts[-1].end == ended):
        yield TimelineStep(ended, status, None, "", "", text(row.get("reason")))


def _first_state(facts: JobFacts) -> str:
    """Return the state in which it was accepted."""
    if facts.text("parents") or facts.text("graph"):
        return "deferred"
    if facts.status == "scheduled" and not facts.text("deliveries"):
        return "scheduled"
    return "queued"
