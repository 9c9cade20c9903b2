"""A job as lists of jobs show it, without its arguments and without the text of its error."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fusion.kernel.progress import parse_progress
from fusion.store.layout.calls import about_of, function_of
from fusion.store.layout.codec import number, text
from fusion.store.query.rows import ENTERED_FIELDS, ERROR_FIELDS, QUEUE_FIELDS, Row, entered_at, error_of, queue_of, state_of

FIELDS = sorted(
    ENTERED_FIELDS
    | ERROR_FIELDS
    | QUEUE_FIELDS
    | {
        "func",
        "description",
        "priority",
        "log_tag",
        "error_frame",
        "attempts",
        "worker_name",
        "quarantined",
        "waits_in",
        "parents",
        "progress",
    }
)
#: Most characters shown of a name that outsiders wrote.
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job that a search found. `since`: when it came into its state; `due`: when a scheduled one is due. `waits_for`: what a blocked or
    deferred one waits for, in words. `done`: the progress of a running one in percent, if it reports any."""

    id: str
    state: str
    queue: str
    function: str
    since: datetime | None
    priority: int
    tag: str
    error: str
    frame: str
    attempts: int
    worker: str
    quarantined: bool
    due: datetime | None
    waits_for: str
    done: float | None
    #: Its description, if that is not the function.
    about: str = ""


def found_job(job_id: str, row: Row, due: datetime | None, waits: Mapping[str, str]) -> FoundJob:
    """Return the job that a row describes. `waits`: why the jobs of each set of blocked ones wait, by the set."""
    state = state_of(row)
    far = parse_progress(text(row.get("progress"))) if state == "started" else None
    return FoundJob(
        id=job_id,
        state=state,
        queue=queue_of(row)[:_LONGEST],
        function=function_of(row)[:_LONGEST],
        since=entered_at(row),
        priority=number(row.get("priority"), 1),
        tag=text(row.get("log_tag"))[:_LONGEST],
        error=error_of(row)[:_LONGEST],
        frame=text(row.get("error_frame"))[:_LONGEST],
        attempts=number(row.get("attempts")),
        worker=text(row.get("worker_name"))[:_LONGEST],
        quarantined=state == "failed" and bool(row.get("quarantined")),
        due=due,
        waits_for=_waits_for(state, row, waits),
        done=far.percent if far else None,
        about=about_of(row)[:_LONGEST],
    )


def _waits_for(state: str, row: Row, waits: Mapping[str, str]) -> str:
    if state == "deferred":
        count = len(_parents(row.get("parents")))
        return "other jobs" if not count else f"{count} other jobs" if count > 1 else "another job"
    if state != "blocked":
        return ""
    name = text(row.get("waits_in"))[:_LONGEST]
    kind, _, rest = name.partition(":")
    if kind == "limit":
        return f"a slot of its key {rest}"
    if kind == "held":
        why = waits.get(name, "").split(": ", 1)[-1]
        return f"a worker that has {rest.partition(':')[2]}" + (f": {why}" if why else "")
    return "a worker that has nothing else to do: it was lost again and again" if kind == "probation" else "?"


def _parents(stored: bytes | None) -> Sequence[Any]:
    try:
        found = json.loads(stored or b"[]")
    except (ValueError, RecursionError):
        return ()
    return found if isinstance(found, list) else ()
