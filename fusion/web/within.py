"""The jobs that a token for some queues may see. A hidden job is answered like a missing one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from redis import Redis

from fusion.exceptions import InvalidName, NoSuchJobError
from fusion.jobs.visible import QUEUES, seen
from fusion.kernel.scope import Scope
from fusion.store.access import inspector_of
from fusion.store.layout.names import check_job_id
from fusion.store.read.tolerant import forgiving, in_words
from fusion.web.exchange import HttpError, Request


def seen_jobs(connection: Redis, scope: Scope, job_ids: Sequence[str]) -> list[str]:
    """Return the jobs that this scope may see, in the given order. Takes one round trip, or none if unrestricted."""
    if scope.all or not job_ids:
        return list(job_ids)
    looking, _ = forgiving(connection)
    rows = inspector_of(looking).table(job_ids, QUEUES)
    return [job_id for job_id, row in zip(job_ids, rows, strict=True) if seen(scope, row)]


def check_job(connection: Redis, request: Request, job_id: object) -> str:
    """Return the id. InvalidName if it is no valid id; NoSuchJobError if the job is missing or hidden from the caller."""
    name = check_job_id(job_id)
    if not seen_jobs(connection, request.scope, [name]):
        raise NoSuchJobError(f"no job {name!r} in the queues of this token: it never existed, was deleted, or its time is over")
    return name


def check_new(connection: Redis, request: Request, queue: str, job_id: str, unique_key: str, parents: Sequence[str]) -> None:
    """Raise HttpError 403, 409 or 422, before anything is written, for a job that a restricted token may not enqueue.

    Ids and unique keys belong to the whole fleet. The error may say that one is taken, but not by which job.
    """
    scope = request.scope
    if scope.all:
        return
    if not scope.allows(queue):
        raise HttpError(403, "queue_not_allowed", "this token is restricted to other queues; choose one of those", field="queue")
    inspector = inspector_of(connection)
    if unique_key and (holder := inspector.holder(unique_key)) and not seen_jobs(connection, scope, [holder]):
        raise taken()
    if any(inspector.fields(job_id, "status", *QUEUES)) and not seen_jobs(connection, scope, [job_id]):
        raise HttpError(409, "duplicate_job", "this job_id is taken; choose another", field="job_id")
    try:
        known = seen_jobs(connection, scope, [check_job_id(parent) for parent in parents])
    except InvalidName as error:
        raise HttpError(422, "invalid_value", str(error), field="depends_on") from None
    if missing := [parent for parent in parents if parent not in known]:
        raise HttpError(422, "invalid_value", f"depends_on: there is no job {missing[0]}", field="depends_on")


def taken() -> HttpError:
    """Return the error for a unique key that a hidden job has."""
    return HttpError(409, "duplicate_job", "another job has this unique_key", field="unique_key")


def told(scope: Scope, broken: Mapping[str, str]) -> list[str]:
    """Return a sentence for each key of a wrong type. For a restricted scope, return one sentence without names."""
    sentences = in_words(broken)
    return sentences if scope.all or not sentences else ["a key in Redis has a wrong type; its contents are missing here"]


def check_sound(request: Request, broken: Mapping[str, str]) -> None:
    """Raise 500 if a broken key hides something, since that must not be reported as missing."""
    for sentence in told(request.scope, broken):
        raise HttpError(500, "broken_key", f"{sentence}; an operator has to find out what else writes to this Redis")
