"""A job's sheet as JSON shows it. What a job is about (arguments, results, texts of errors) is told only where it is asked for, and masked."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from fusion.callbacks import shown_url
from fusion.events.wording import message_of, whole_of
from fusion.jobs.attempts import Attempt
from fusion.jobs.masked import SHOWN, masked_arguments
from fusion.jobs.sheet import Sheet
from fusion.jobs.waiting import Wait
from fusion.jobs.wording import ending, retries
from fusion.kernel.redaction import UNREADABLE, cut, masked_result, masked_text, printable
from fusion.kernel.timeutil import to_iso
from fusion.store.layout.codec import number, text
from fusion.store.read.callback_inspector import DeliveryInfo
from fusion.store.read.event_inspector import moment_of
from fusion.store.read.job_facts import Kin
from fusion.store.write.event_broker import StreamEntry

#: Characters of a line of a trace; lines of a trace, and of all of it.
_LINE, TRACE, _WHOLE_TRACE = 1024, 12, 1000
#: Said in place of arguments that nobody may look into.
PICKLED = "not shown: pickled"
_TOO_LARGE = "not shown: {} bytes"
#: Spaces before a line of a source, which follows a place.
_SOURCE_INDENT = 4
#: A line of a traceback that says where, and nothing of what was at hand.
_WHERE = re.compile(r'\s*File "[^"]{1,300}", line \d+, in \S{1,200}\s*$')


def document(sheet: Sheet, *, details: bool = False, trace: bool = False) -> dict[str, Any]:
    """All of a sheet. `details`: with what the job is about, masked: arguments, meta, texts of errors, the last lines of its traceback. `trace`:
    with all of those."""
    facts = sheet.facts
    return {
        **summary(sheet, note=details),
        "function": sheet.function or None,
        "last_updated": to_iso(sheet.at),
        "state_since": _iso(sheet.entered_at),
        "waits": [_wait(one) for one in sheet.waits],
        "run": _run(sheet),
        "timeline": {"steps": [_step(sheet, n, details) for n in range(len(sheet.steps))], "complete": facts.all_events},
        "tries": [_try(attempt, details) for attempt in sheet.attempt_history],
        "retry": _retry(sheet),
        "limits": _limits(sheet),
        "fair_key": _key(sheet._text("fair_key"), details),
        "unique": _unique(sheet, details),
        "parents": _parents(sheet),
        "children": _children(sheet),
        "batch": _batch(sheet),
        "in_chain": "takes" in facts.row,
        "cron": sheet._text("cron") or None,
        "failure_group": sheet._text("failure_group") or None,
        "copied_from": sheet.other("copied_from"),
        "copied_to": [one.id for one in sheet.copies],
        "replaces": sheet.other("replaces"),
        "replaced_by": sheet.other("replaced_by"),
        "times": _times(sheet),
        "callbacks": callbacks(sheet, details),
        "signature": {"state": sheet.signature.state, "why": sheet.signature.why or None},
        "size": {"bytes": sum(facts.sizes.values()), "too_large": list(facts.too_large)},
        "events": {"entries": [_event(entry, details) for entry in facts.events], "complete": facts.all_events},
        **(_details(sheet) if details else {}),
        **({"trace": _trace(sheet, _WHOLE_TRACE if trace else TRACE)} if details or trace else {}),
    }


def summary(sheet: Sheet, *, note: bool = False) -> dict[str, Any]:
    """The part that versions before had. `note`: with what its task says of how far it is."""
    return {
        "id": sheet.id,
        "status": sheet.status,
        "queue": sheet.origin,
        "original_queue": sheet.original_queue,
        "priority": sheet.priority,
        "log_tag": sheet.log_tag,
        "concurrency_key": sheet.concurrency_key or None,
        "created_at": _iso(sheet.created_at),
        "enqueued_at": _iso(sheet.enqueued_at),
        "scheduled_at": _iso(sheet.facts.due) if sheet.status == "scheduled" else None,
        "started_at": _iso(sheet.started_at),
        "ended_at": _iso(sheet.ended_at),
        "attempts": sheet.attempts,
        "lost": sheet.lost,
        "deliveries": sheet.deliveries,
        "retry_count": sheet.retry_count,
        "worker": sheet.worker_name,
        "quarantined": bool(sheet.quarantined),
        "error": {"class": sheet.error_class, "at": sheet.error_frame} if sheet.error_class else None,
        "progress": sheet.progress and sheet.progress.document(note=note),
    }


def _trace(sheet: Sheet, most: int) -> dict[str, Any]:
    lines = trace_lines(sheet)
    return {"lines": lines[-most:], "of": len(lines)}


def _details(sheet: Sheet) -> dict[str, Any]:
    facts = sheet.facts
    return {
        "description": masked_text(sheet.description) if sheet.description != sheet.function else None,
        "arguments": arguments(sheet),
        "meta": _json(sheet, "meta"),
        "cursor": _json(sheet, "cursor"),
        "returned": _json(sheet, "result"),
        "reason_text": masked_text(sheet.reason) or None,
        "result_error": masked_text(text(facts.row.get("result_error"))) or None,
        "callback_error_text": masked_text(sheet.callback_error) or None,
        "quarantined_for": masked_text(sheet.quarantined) or None,
    }


def arguments(sheet: Sheet) -> str | None:
    """Its arguments, masked, as JSON; a sentence in place of those that are not looked into."""
    raw = sheet.facts.row.get("data")
    if "data" in sheet.facts.too_large:
        return _TOO_LARGE.format(sheet.facts.sizes["data"])
    if raw is None:
        return None
    return PICKLED if sheet.is_pickled else masked_arguments(raw)


def _json(sheet: Sheet, name: str) -> str | None:
    """A field of JSON, masked."""
    raw = sheet.facts.row.get(name)
    if name in sheet.facts.too_large:
        return _TOO_LARGE.format(sheet.facts.sizes[name])
    if raw is None:
        return None
    pickled = sheet.is_pickled and (name == "result" or raw.lstrip()[:1] not in (b"{", b"["))
    return PICKLED if pickled else masked_result(raw, "json", SHOWN)


def trace_lines(sheet: Sheet) -> list[str]:
    """The traceback of its last failed run, masked: places stay, and of the other lines what may be of the job's data does not."""
    if "exc_info" in sheet.facts.too_large:
        return [_TOO_LARGE.format(sheet.facts.sizes["exc_info"])]
    lines = (sheet.exc_info or "").splitlines()[-_WHOLE_TRACE:]
    shown, source = [], False
    for line in filter(str.strip, lines):
        if len(line) < _LINE and _WHERE.match(line):
            shown.append(printable(line.rstrip()))
            source = True
            continue
        blank = line[: len(line) - len(line.lstrip())]
        source = source and len(blank) >= _SOURCE_INDENT
        shown.append(printable(blank[:40]) + masked_text(line.strip(), _LINE, source=source))
    return shown


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else to_iso(moment)


def _key(key: str, details: bool) -> str | None:
    """A key that a producer chose: it may hold whose job it is."""
    return (key if details else masked_text(key)) or None


def _wait(wait: Wait) -> dict[str, Any]:
    return {"code": wait.code, "text": wait.text, "ahead": wait.ahead, "until": _iso(wait.until)}


def _run(sheet: Sheet) -> dict[str, Any] | None:
    run = sheet.facts.run
    if run is None:
        return None
    started, limit = sheet.started_at, sheet.timeout
    seconds = None if started is None else max(0.0, (sheet.at - started).total_seconds())
    left = None if run.lease_until is None else (run.lease_until - sheet.at).total_seconds()
    return {
        "worker": sheet.worker_name or None,
        "worker_alive": run.worker is not None and run.worker.alive,
        "since": _iso(started),
        "seconds": seconds,
        "timeout": limit if limit >= 0 else None,
        "used": None if seconds is None or limit <= 0 else round(seconds / limit, 4),
        "lease_until": _iso(run.lease_until),
        "lease_left": left,
        "ahead": run.ahead,
        "told": {"1": "cancel", "stop": "stop"}.get(sheet._text("cancel")),
    }


def _step(sheet: Sheet, nth: int, details: bool) -> dict[str, Any]:
    step = sheet.steps[nth]
    found = {
        "at": to_iso(step.at),
        "state": step.state,
        "seconds": None if nth == len(sheet.steps) - 1 else step.seconds,
        "worker": step.worker or None,
        "cause": printable(cut(step.cause, 200)) or None,
        "from": "event" if step.told else "record",
    }
    why = printable(cut(step.why, 1024)) if step.told else masked_text(step.why)
    return found | ({"why": why or None} if details else {})


def _try(attempt: Attempt, details: bool) -> dict[str, Any]:
    took = None if attempt.start is None or attempt.end is None else max(0.0, (attempt.end - attempt.start).total_seconds())
    kind = attempt.error.partition(":")[0]
    found = {
        "outcome": printable(cut(attempt.outcome, 40)),
        "started_at": _iso(attempt.start),
        "ended_at": _iso(attempt.end),
        "seconds": took,
        "worker": attempt.worker,
        "error_class": kind if _CLASS.fullmatch(kind) else None,
        "signal": attempt.signal,
        "exit_code": attempt.exit_code,
        "ending": ending(attempt) or None,
        "oom_likely": attempt.oom_likely,
        "peak_memory": attempt.maxrss and attempt.maxrss * 1024,
    }
    return found | ({"error": masked_text(attempt.error) or None} if details else {})


_CLASS = re.compile(r"[A-Za-z_][\w.]{0,200}", re.ASCII)


def _retry(sheet: Sheet) -> dict[str, Any]:
    words, left = retries(sheet.facts.row)
    waits = sheet.status == "scheduled" and (sheet.attempts or sheet.lost)
    return {"policy": printable(words), "left": left, "next_at": _iso(sheet.facts.due) if waits else None}


def _limits(sheet: Sheet) -> dict[str, Any] | None:
    key = sheet.facts.key
    if key is None:
        return None
    limit, all_ = key.limit, sheet.scope.all
    return {
        "key": limit.key,
        "max_concurrent": limit.max_concurrent,
        "rate": limit.rate and str(limit.rate),
        "has_slot": key.has_slot,
        "held": key.held if all_ else None,
        "waiting": key.waiting if all_ else None,
        "ahead": key.ahead if all_ else None,
        "paused": limit.paused_until > sheet.at.timestamp(),
        "holders": [_kin(one) for one in sheet.seen(*key.holders)],
    }


def _unique(sheet: Sheet, details: bool) -> dict[str, Any] | None:
    if not sheet.unique_key:
        return None
    holder = sheet.facts.unique_holder
    known = sheet.facts.others.get(holder)
    seen = holder if known is not None and sheet.seen(known) else None
    window = number(sheet.facts.row.get("unique_window"))
    return {
        "key": _key(sheet.unique_key, details),
        "until": sheet._text("unique_until") or "end",
        "window": window / 1000 if window else None,
        "has_it": holder == sheet.id,
        "holder": seen,
        "free_in": sheet.facts.unique_left_ms / 1000 if seen and sheet.facts.unique_left_ms else None,
    }


_POLICIES = {"": "fail", "?": "ignore", "~": "wait"}


def _kin(one: Kin) -> dict[str, Any]:
    return {"id": one.id, "status": one.status or "gone", "queue": one.queue or None, "function": one.function or None}


def _parents(sheet: Sheet) -> dict[str, Any]:
    facts = sheet.facts
    seen = sheet.seen(*facts.parents)
    all_ = sheet.scope.all
    return {
        "total": facts.parents_count if all_ else len(seen),
        "more": facts.more_parents and all_,
        "jobs": [_kin(one) | {"on_failure": _POLICIES.get(one.sign, "fail"), "waited_for": one.unmet} for one in seen],
    }


def _children(sheet: Sheet) -> dict[str, Any]:
    seen = sheet.seen(*sheet.facts.children)
    return {"total": sheet.facts.children_count if sheet.scope.all else len(seen), "jobs": [_kin(one) for one in seen]}


def _batch(sheet: Sheet) -> dict[str, Any] | None:
    batch = sheet._text("batch")
    if not batch or not sheet.scope.all:  # it may span other queues
        return None
    known = sheet.facts.batch
    state = next((word for word in ("canceled", "ended", "closed") if f"{word}_at" in known), "open" if known else "gone")
    return {"id": batch, "name": known.get("name") or None, "state": state, "is": sheet._text("batch_as") or "member"}


def _times(sheet: Sheet) -> dict[str, Any]:
    facts = sheet.facts
    timeout = number(facts.row.get("queue_timeout"))
    return {
        "timeout": sheet.timeout if sheet.timeout >= 0 else None,
        "ttl": _figure(sheet._text("ttl")) or (timeout / 1000 if timeout else None),
        "expires_at": None if sheet.ended else _iso(facts.moment("expires_at")),
        "result_ttl": _figure(sheet._text("result_ttl")),
        "failure_ttl": _figure(sheet._text("failure_ttl")),
        "kept_until": _iso(facts.kept_until) if sheet.ended else None,
    }


def _figure(stored: str) -> float | None:
    try:
        found = float(stored)
    except ValueError:
        return None
    return found if abs(found) < 1e15 else None


def _event(entry: StreamEntry, details: bool) -> dict[str, Any]:
    fields = entry.fields
    found = {
        "at": to_iso(moment_of(entry.id)),
        "event": printable(cut(fields.get("event", ""), 40)),
        "worker": printable(cut(fields.get("worker", ""), 200)) or None,
        "attempts": whole_of(fields, "attempts"),
        "log": fields.get("source") == "log",
    }
    # the stream holds neither arguments nor what errors said
    return found | ({"message": printable(cut(message_of(fields), 1024))} if details else {})


# -- who is told


def callbacks(sheet: Sheet, details: bool) -> list[dict[str, Any]]:
    """Who is told of its end: functions, and URLs with what became of their deliveries, as far as its last end names them."""
    found: list[dict[str, Any]] = [
        {"on": event, "function": _function(raw), "url": None, "delivery": None}
        for event in ("success", "failure", "stopped")
        if (raw := sheet._text(f"on_{event}"))
    ]
    for event, name in (("success", "success_task_handler"), ("failure", "failed_task_handler"), ("end", "callback_url")):
        if url := sheet._text(name):
            sent = next((one for one in sheet.facts.deliveries if one.url == url), None)
            found.append({"on": event, "function": None, "url": shown_url(url), "delivery": sent and _delivery(sent, details)})
    return found


def _function(raw: str) -> str:
    import json

    try:
        named = json.loads(raw)
        name = named["func"] if isinstance(named, dict) else named
        return printable(cut(str(name), 200))
    except (ValueError, KeyError, RecursionError):
        return UNREADABLE


def _delivery(sent: DeliveryInfo, details: bool) -> dict[str, Any]:
    found = {"id": sent.id, "status": sent.status, "tries": sent.tries, "next_at": _iso(sent.next_at)}
    return found | ({"answer": masked_text(sent.answer) or None} if details else {})
