"""Put an ended job back into its queue after a delay, in one script call. `POST /retryTask/` and `wrappers.retry_task` use it."""

from __future__ import annotations

from redis import Redis

from fusion.exceptions import DependencyCycle, DuplicateJob, InvalidJobOperation, NoSuchJobError
from fusion.kernel.nonces import new_nonce
from fusion.kernel.timeutil import to_delay
from fusion.status import refuse_foreign
from fusion.store.access import broker_of
from fusion.store.client.connections import get_current_connection
from fusion.store.client.errors import repeatable
from fusion.store.layout.names import check_job_id

#: Seconds until a job that was put back may run.
DELAY = 120.0


def put_back(job_id: str, *, delay: float = DELAY, nonce: str = "", connection: Redis | None = None) -> None:
    """Schedule a failed, canceled or stopped job to start over in `delay` seconds, in its original queue and at its old priority.

    It is scheduled at once and can't be claimed before. Of two calls one does it, and the other gets the error that the job is `scheduled`.
    A call with the same `nonce` is a repetition and no error, whatever has happened to the job since. Raises NoSuchJobError if it is gone,
    InvalidJobOperation for any other state, DuplicateJob if another job has its unique key now, DependencyCycle if it would wait for itself,
    InvalidName for an invalid job id, ValueError for a negative delay.
    """
    connection = connection if connection is not None else get_current_connection()
    seconds, nonce = to_delay(delay, "delay"), nonce or new_nonce()
    check_job_id(job_id)
    repeatable(lambda: _put_back(connection, job_id, nonce, seconds))


def _put_back(connection: Redis, job_id: str, nonce: str, seconds: float) -> None:
    (answer,) = broker_of(connection).requeue([job_id], nonce, delay=seconds)
    if answer == "missing":
        raise NoSuchJobError(f"no job {job_id!r}: it never existed, was deleted, or its time in the failed queue is over")
    if answer == "corrupt":
        raise InvalidJobOperation(f"job {job_id} has no data to run; delete it")
    if answer.startswith("error: "):
        raise InvalidJobOperation(f"job {job_id} can't be put back: {answer}")
    if answer.startswith("duplicate "):
        raise DuplicateJob(job_id, "", answer.removeprefix("duplicate "))
    if answer.startswith("cycle "):
        raise DependencyCycle.of(job_id, answer.removeprefix("cycle "))
    refuse_foreign(job_id, answer)
    if answer != "ok":
        raise InvalidJobOperation(f"job {job_id} is {answer}; only failed, canceled or stopped jobs are put back")
