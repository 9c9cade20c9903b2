"""A job as a row: how it is written in the user's transaction, and how it is read to be enqueued later."""

from __future__ import annotations

import json
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fusion.enqueue.graph import Graph
from fusion.exceptions import OptionError
from fusion.store.layout.names import check_queue_name
from fusion.store.layout.records import NewJob, Replicas, Room

if TYPE_CHECKING:
    from fusion.enqueue.hooked import SignedJobs

#: ttl of a job that expired while it was a row. It is enqueued all the same, and expires at once, so that its outcome can be seen.
_OVER = 0.001
#: The terms on which a row is to be accepted.
Terms = tuple[Replicas | None, Room | None]


@dataclass(frozen=True, slots=True)
class JobRow:
    """A row to be enqueued."""

    id: int
    queue: str
    job_id: str
    body: str
    #: Unix seconds by the clock of the process that wrote it.
    written_at: float


def rows_of(chunks: Iterable[SignedJobs], now: float | None = None) -> list[dict[str, Any]]:
    """Return the columns of new rows for signed jobs, in their order. OptionError for jobs that are accepted together in several calls, or
    not at all: each row is accepted on its own."""
    written = time.time() if now is None else now
    rows = []
    for nth, chunk in enumerate(chunks):
        if nth or Graph.is_needed(chunk.jobs) or any(_is_of_batch(job) for job in chunk.jobs):
            rule = "chains, graphs and batches can't go through an outbox; enqueue them in a task, or with on_commit=False"
            raise OptionError("", rule)
        terms: dict[str, Any] = {}
        if chunk.terms.replicas is not None:
            terms["replicas"] = [chunk.terms.replicas.count, chunk.terms.replicas.timeout]
        if chunk.terms.room is not None and chunk.terms.room.length is not None:
            terms["room"] = chunk.terms.room.length
        for job in chunk.jobs:
            body = json.dumps({**_body(job, written), **terms}, separators=(",", ":"))
            rows.append({"queue": chunk.queue, "job_id": job.id, "body": body, "written_at": written})
    return rows


def _is_of_batch(job: NewJob) -> bool:
    """Return True if it has a batch that is open in Redis now, and may be closed when the row is sent; or if it is a callback of one."""
    return job.fields.get("batch") is not None or "h" in str(job.fields.get("ties", ""))


def _body(job: NewJob, written: float) -> dict[str, Any]:
    body: dict[str, Any] = {"v": 1, "priority": job.priority, "nonce": job.nonce}
    fields: dict[str, Any] = {}
    raw = []
    for name, value in job.fields.items():
        if isinstance(value, bytes):
            value = b64encode(value).decode()
            raw.append(name)
        fields[name] = value
    body["fields"] = fields
    if raw:
        body["raw"] = raw
    if job.front:
        body["front"] = True
    if job.ttl is not None:
        body["ttl"] = job.ttl
    due = job.due if job.delay is None else written + job.delay
    if due is not None:
        body["due"] = due
    return body


def read(row: JobRow, now: float) -> tuple[NewJob, Terms]:
    """Return the job, with the remaining ttl at that time, and the terms on which it is to be accepted. ValueError, TypeError or KeyError for
    a row that Fusion did not write, InvalidName for an invalid queue name."""
    check_queue_name(row.queue)
    body: dict[str, Any] = json.loads(row.body)
    if not isinstance(body, dict):
        raise ValueError("its body is not a JSON object")
    if body["v"] != 1:
        raise ValueError("it was written by a newer version of Fusion; upgrade what forwards it")
    fields: dict[str, Any] = dict(body["fields"])
    for name in body.get("raw", ()):
        fields[name] = b64decode(fields[name], validate=True)
    due, ttl = body.get("due"), body.get("ttl")
    if ttl is not None:
        since = row.written_at if due is None else max(due, row.written_at)
        ttl = max(_OVER, min(float(ttl), ttl - (now - since)))
    front, nonce = bool(body.get("front")), str(body["nonce"])
    job = NewJob(row.job_id, int(body["priority"]), fields, front, ttl, due if due is None else float(due), nonce=nonce)
    return job, _terms(body)


def _terms(body: Mapping[str, Any]) -> Terms:
    replicas, room = body.get("replicas"), body.get("room")
    return Replicas(int(replicas[0]), float(replicas[1])) if replicas else None, None if room is None else Room(int(room))


def job_of(row: JobRow, now: float) -> NewJob:
    """Return the job alone."""
    return read(row, now)[0]
