"""Select failed jobs, and count them by error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fnmatch import fnmatchcase

from fusion.kernel.timeutil import from_iso
from fusion.store.layout.calls import function_of as function_of
from fusion.store.layout.codec import number, text
from fusion.store.layout.names import is_reserved
from fusion.store.read.failure_inspector import message_of
from fusion.store.read.inspector import Inspector

#: Jobs read in one round trip.
CHUNK = 100
#: Characters of a reason that are kept.
_REASON = 1000
#: Fields by which jobs are selected. The function is read only if needed: in full records it is in `data`, which may be long.
_FIELDS = ("status", "origin", "original_queue", "reason", "error_class", "error_bases", "error_frame", "ended_at", "requeued")


@dataclass(frozen=True, slots=True)
class FailedFilter:
    """A selection of failed jobs. A field that is None selects all. Names may be wildcards (`tasks.sms.*`). Fusion's own queues, such as
    `_callbacks`, are left out unless `queue` names one.

    `error`: the class, dotted or by its last name, or one of its bases, so that `ConnectionError` means all of its kind. `older_than`,
    `newer_than`: seconds since it failed. Quarantined jobs are left out unless `include_quarantined`.
    """

    queue: str | None = None
    function: str | None = None
    error: str | None = None
    older_than: float | None = None
    newer_than: float | None = None
    include_quarantined: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed job with the fields for a selection. `function` is empty if it was not requested or can't be read; `problem`: what is wrong
    with the record itself; `requeued`: how often it was put back before it failed again."""

    id: str
    queue: str = ""
    function: str = ""
    error_class: str = ""
    error_bases: tuple[str, ...] = ()
    error_frame: str = ""
    failed_at: datetime | None = None
    requeued: int = 0
    quarantined: str = ""
    problem: str = ""
    reason: str = ""

    def is_a(self, names: Iterable[str]) -> bool:
        """Return True if its error is of one of these classes: dotted or last names, wildcards."""
        own = (self.error_class, *self.error_bases)
        return any(fnmatchcase(kind, name) or fnmatchcase(kind.rpartition(".")[2], name) for name in names for kind in own)


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failed jobs with the same error class at the same place."""

    error_class: str
    error_frame: str
    count: int
    quarantined: int
    first_seen: datetime | None
    last_seen: datetime | None
    queues: Mapping[str, int] = field(default_factory=dict)
    #: The job that failed last, and the message of its error, masked.
    example: str = ""
    message: str = ""


def scan(inspector: Inspector, wanted: FailedFilter, chunk: int = CHUNK) -> Iterator[tuple[int, list[Failure]]]:
    """Yield all failed jobs in chunks: the number of jobs read, and those selected. They come in the order in which they expire; with the same
    failure_ttl, that is the order in which they failed. A record that can't be read is selected, with its problem."""
    ids = inspector.members("failed", "", 0, -1)
    now = inspector.now()
    names = [*_FIELDS, "quarantined"]
    if wanted.function is not None:
        names += ["func"]
    for start in range(0, len(ids), chunk):
        part = ids[start : start + chunk]
        rows = inspector.table(part, names)
        if wanted.function is not None:
            add_calls(inspector, part, rows)
        found = (_failure(job_id, row) for job_id, row in zip(part, rows, strict=True))
        yield len(part), [failure for failure in found if failure is not None and _fits(failure, wanted, now)]


def newest(inspector: Inspector, count: int) -> list[Failure]:
    """Return up to `count` failed jobs from the end of the set, where the newest stand. Quarantined jobs are included."""
    ids = inspector.members("failed", "", -count, -1)
    rows = inspector.table(ids, [*_FIELDS, "quarantined"])
    return [failure for job_id, row in zip(ids, rows, strict=True) if (failure := _failure(job_id, row)) is not None]


def add_calls(inspector: Inspector, ids: Sequence[str], rows: Sequence[dict[str, bytes | None] | Exception]) -> None:
    """Add the call itself to rows of full records, which have no field for the function."""
    older = {job_id: row for job_id, row in zip(ids, rows, strict=True) if isinstance(row, dict) and row["func"] is None}
    calls = inspector.table([*older], ["data", "serializer"]) if older else []
    for row, call in zip(older.values(), calls, strict=True):
        if isinstance(call, dict):
            row.update(call)


def _failure(job_id: str, row: Mapping[str, bytes | None] | Exception) -> Failure | None:
    if isinstance(row, Exception):
        return Failure(job_id, problem=f"error: {row}")
    status = text(row["status"])
    if status not in ("", "failed"):
        return None  # it was put back meanwhile
    reason = text(row["reason"])
    return Failure(
        job_id,
        queue=text(row["original_queue"]) or text(row["origin"]),
        function=function_of(row),
        error_class=text(row["error_class"]) or reason.partition(":")[0] or "unknown",
        error_bases=tuple(filter(None, text(row["error_bases"]).split("\n"))),
        error_frame=text(row["error_frame"]),
        failed_at=from_iso(row["ended_at"]),
        requeued=number(row["requeued"]),
        quarantined=text(row["quarantined"]),
        problem="" if status else "missing",
        reason=reason[:_REASON],
    )


def _fits(failure: Failure, wanted: FailedFilter, now: datetime) -> bool:
    if failure.problem:
        # An unreadable record matches no condition, so it is selected only if there are no conditions.
        return replace(wanted, include_quarantined=False) == FailedFilter()
    if failure.quarantined and not wanted.include_quarantined:
        return False
    if is_reserved(failure.queue) and wanted.queue != failure.queue:
        return False
    if wanted.queue is not None and not fnmatchcase(failure.queue, wanted.queue):
        return False
    if wanted.function is not None and not fnmatchcase(failure.function, wanted.function):
        return False
    if wanted.error is not None and not failure.is_a([wanted.error]):
        return False
    at = failure.failed_at
    if wanted.older_than is not None and (at is None or (now - at).total_seconds() < wanted.older_than):
        return False
    return wanted.newer_than is None or (at is not None and (now - at).total_seconds() <= wanted.newer_than)


def group(failures: Iterable[Failure]) -> list[FailureGroup]:
    """Group failures by error class and frame, the most frequent first."""
    groups: dict[tuple[str, str], list[Failure]] = {}
    for failure in failures:
        if failure.problem != "missing":
            groups.setdefault((failure.error_class or "unreadable", failure.error_frame), []).append(failure)
    found = [_summary(*key, members) for key, members in groups.items()]
    return sorted(found, key=lambda one: (-one.count, one.error_class, one.error_frame))


def _summary(error_class: str, error_frame: str, members: list[Failure]) -> FailureGroup:
    times = sorted(failure.failed_at for failure in members if failure.failed_at)
    queues: dict[str, int] = {}
    for failure in members:
        queues[failure.queue] = queues.get(failure.queue, 0) + 1
    return FailureGroup(
        error_class=error_class,
        error_frame=error_frame,
        count=len(members),
        quarantined=sum(bool(failure.quarantined) for failure in members),
        first_seen=times[0] if times else None,
        last_seen=times[-1] if times else None,
        queues=dict(sorted(queues.items())),
        example=members[-1].id,
        message=message_of(error_class, members[-1].reason),
    )
