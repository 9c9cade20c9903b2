"""An event as a JSON object: a line of the event file, and the form in which events are parked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fusion.events.event import JobEvent
from fusion.kernel.timeutil import EPOCH, from_iso, to_iso

#: Always there, though empty: who reads the lines may count on them.
_ALWAYS = frozenset({"id", "event", "job_id", "queue", "message", "payload", "result"})
_NAMES = tuple(item.name for item in fields(JobEvent))


def to_document(event: JobEvent) -> dict[str, Any]:
    """The event's fields as they are named, with `time` (ISO-8601, UTC) for `at`, and `task` and `task_type`. Absent ones are left out."""
    values = {name: getattr(event, name) for name in _NAMES if name != "at"}
    document: dict[str, Any] = {"time": to_iso(event.at)}
    document |= {name: value for name, value in values.items() if name in _ALWAYS or value not in (None, "")}
    return document | {"task": event.task, "task_type": event.task_type}


def to_line(event: JobEvent) -> str:
    """One line of JSON, in ASCII: nothing in it ends the line or steers a terminal."""
    return json.dumps(to_document(event), separators=(",", ":")).replace("\x7f", "\\u007f") + "\n"


def from_document(document: Mapping[str, Any]) -> JobEvent:
    """The event of a document. ValueError if the document is not one of an event."""
    known = {name: document[name] for name in _NAMES if name in document}
    try:
        return JobEvent(**known, at=from_iso(document.get("time")) or EPOCH)
    except TypeError as error:
        raise ValueError(f"this is not an event: {error}") from None
