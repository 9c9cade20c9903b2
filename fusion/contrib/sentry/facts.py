"""Facts of a job for Sentry: names, the group of its failure, its check-ins. Nothing here needs Sentry's library."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from fusion.kernel.redaction import masked_call, masked_text

#: Most characters of a message.
MESSAGE = 1024
_LINE = re.compile(r":[0-9]+\Z")
_CRON = re.compile(r"cron-(.+)-(?:[0-9]{8}T[0-9]{6}Z|manual-[0-9]+)\Z")


def context_of(fields: Mapping[bytes, bytes], job_id: str, queue: str, task: str) -> dict[str, Any]:
    """Return the context `fusion` of an event. Arguments are masked by the strict rule."""
    serializer = fields.get(b"serializer", b"").decode("ascii", "replace")
    return {
        "job_id": job_id,
        "task": task,
        "queue": queue,
        "attempt": attempt_of(fields),
        "priority": number(fields, b"priority", 1),
        "arguments": masked_call(fields.get(b"data", b""), serializer),
    }


def tags_of(fields: Mapping[bytes, bytes], queue: str, task: str) -> dict[str, str]:
    """Return the tags of an event."""
    return {"fusion.task": task, "fusion.queue": queue, "fusion.attempt": str(attempt_of(fields))}


def fingerprint_of(error_class: str, frame: str, task: str) -> list[str]:
    """Return what makes events one issue: Fusion's failure group, which is the class of the error and its place, without the line. `frame`:
    `module:function:line`, empty if there is none."""
    place = _LINE.sub("", frame) or task
    return ["fusion", hashlib.sha1(f"{error_class}\n{place}".encode(), usedforsecurity=False).hexdigest()[:12]]


def attempt_of(fields: Mapping[bytes, bytes]) -> int:
    """Return 1 for the first run."""
    return number(fields, b"attempts", 0) + 1


def entry_of(job_id: str) -> str | None:
    """Return the cron entry that made a job; None for any other job."""
    found = _CRON.match(job_id)
    return found[1] if found else None


def check_in(entry: str, execution_id: str, status: str, seconds: float | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a check-in. Its id follows from the run, so that the worker can end what a killed process began."""
    own = hashlib.blake2b(execution_id.encode(), digest_size=16, person=b"fusion-checkin").hexdigest()
    return {
        "type": "check_in",
        "monitor_slug": re.sub(r"[^a-z0-9_-]+", "-", entry.lower())[:50],
        "check_in_id": own,
        "status": status,
        "duration": seconds,
        "environment": options.get("environment"),
        "release": options.get("release"),
    }


def masked_event(event: dict[str, Any], hint: object = None) -> dict[str, Any]:
    """Mask what a task has logged or raised, wherever it is in an event or a transaction. It changes the event."""
    for error in _values(event.get("exception")):
        error["value"] = masked_text(error.get("value") or "", MESSAGE)
        for frame in (error.get("stacktrace") or {}).get("frames") or []:
            for name in ("vars", "context_line", "pre_context", "post_context"):
                frame.pop(name, None)
    if event.get("message"):
        event["message"] = masked_text(event["message"], MESSAGE)
    if entry := event.get("logentry"):
        event["logentry"] = {"message": masked_text(entry.get("formatted") or entry.get("message") or "", MESSAGE)}
    for crumb in _values(event.get("breadcrumbs")):
        masked_crumb(crumb)
    for span in event.get("spans") or []:
        if span.get("description"):
            span["description"] = masked_text(span["description"], MESSAGE)
    if event.get("extra"):
        event["extra"] = _masked(event["extra"])
    return event


def masked_crumb(crumb: dict[str, Any], hint: object = None) -> dict[str, Any]:
    """Mask a breadcrumb. It changes it."""
    if crumb.get("message"):
        crumb["message"] = masked_text(crumb["message"], MESSAGE)
    if crumb.get("data"):
        crumb["data"] = _masked(crumb["data"])
    return crumb


def _masked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _masked(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_masked(one) for one in value]
    return value if value is None or isinstance(value, bool) else masked_text(value, MESSAGE)


def _values(found: Any) -> list[dict[str, Any]]:
    values = found.get("values") if isinstance(found, Mapping) else found
    return [one for one in values or [] if isinstance(one, dict)]


def number(fields: Mapping[bytes, bytes], key: bytes, default: int) -> int:
    """Return a whole number of the record."""
    raw = fields.get(key, b"")
    return int(raw) if raw.isdigit() and len(raw) < 10 else default
