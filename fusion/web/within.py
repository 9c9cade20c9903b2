"""What a token that is restricted to some queues may see of jobs. What is hidden from it is answered like what is not there."""

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
    """Those of these jobs that may be seen, in their order. One round trip, none without restriction."""
    if scope.all or not job_ids:
        return list(job_ids)
    looking, _ = forgiving(connection)
    rows = inspector_of(looking).table(job_ids, QUEUES)
    return [job_id for job_id, row in zip(job_ids, rows, strict=True) if seen(scope, row)]


def check_job(connection: Redis, request: Request, job_id: object) -> str:
    """Return the id. InvalidName if it can't be an id; NoSuchJobError if there is no such job, or the caller may not see it."""
    name = check_job_id(job_id)
    if not seen_jobs(connection, request.scope, [name]):
        raise NoSuchJobError(f"no job {name!r} in the queues of this token: it never existed, was deleted, or its time is over")
    return name


def check_new(connection: Redis, request: Request, queue: str, job_id: str, unique_key: str, parents: Sequence[str]) -> None:
    """HttpError 403, 409 or 422 for a job that may not be enqueued with a restricted token, before anything is written.

    Ids and unique keys are the fleet's: that one of them is taken can be told, by whom can't.
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
    """The answer where a unique key is that of a job which may not be seen."""
    return HttpError(409, "duplicate_job", "this unique_key is another job's", field="unique_key")


def told(scope: Scope, broken: Mapping[str, str]) -> list[str]:
    """The sentences about keys of a wrong type; to who sees some queues alone, that there are some."""
    sentences = in_words(broken)
    return sentences if scope.all or not sentences else ["a key is of a wrong type; what it should hold is missing here"]


def check_sound(request: Request, broken: Mapping[str, str]) -> None:
    """Raise 500 if a broken key hides something: that is not said to be missing."""
    for sentence in told(request.scope, broken):
        raise HttpError(500, "broken_key", f"{sentence}; an operator has to look who else writes to this Redis")
