"""Enqueue jobs over HTTP, and put ended ones back. Every change goes through the Broker."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from redis import Redis

from fusion.enqueue.build import sealed
from fusion.enqueue.graph import parents_of
from fusion.enqueue.sending import Chunk
from fusion.exceptions import (
    BatchClosed,
    DependencyCycle,
    DuplicateJob,
    InvalidJobOperation,
    InvalidName,
    NoSuchBatchError,
    NoSuchJobError,
    QueueFull,
    UnknownDependency,
)
from fusion.kernel.timeutil import EPOCH, from_iso
from fusion.settings import get_settings
from fusion.store.access import broker_of, inspector_of
from fusion.store.layout.names import check_job_id
from fusion.store.layout.records import NewJob
from fusion.views.base import ABSENT
from fusion.views.job import AcceptedView, PutBackView
from fusion.web import putback
from fusion.web.calls import CALL, PUT_BACK_OR_CALL, TaskCall, read_call
from fusion.web.exchange import RETRY_AFTER, HttpError, Request, Response
from fusion.web.idempotency import Once, once
from fusion.web.routing import Route, change
from fusion.web.within import check_job, check_new, seen_jobs, taken


class Enqueue:
    """The routes that enqueue jobs. `tasks`: modules whose functions callers may name."""

    def __init__(self, connection: Redis, tasks: Sequence[str]) -> None:
        self._connection, self._tasks = connection, tuple(tasks)

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            change(
                "/retryTask/",
                self.retry_task,
                "retry_task",
                body=PUT_BACK_OR_CALL,
                answer=PutBackView | AcceptedView,
                statuses=(202,),
                keyed=True,
                by_queue=True,
            ),
            change(
                "/retryTask",
                self.retry_task,
                "retry_task",
                body=PUT_BACK_OR_CALL,
                answer=PutBackView | AcceptedView,
                statuses=(202,),
                keyed=True,
                called="retry_task_bare",
                by_queue=True,
            ),
            change(
                "/api/v1/jobs",
                self.enqueue,
                "enqueue",
                body=CALL,
                answer=AcceptedView,
                statuses=(201, 200),
                keyed=True,
                by_queue=True,
            ),
        ]

    def enqueue(self, request: Request) -> Response:
        """Enqueue a call of a task; once for each Idempotency-Key."""
        body = request.json()
        repeat = once(request, body)
        call = read_call(body, self._tasks, job_id=repeat.job_id)
        return self._accept(request, call, repeat, 201)

    def retry_task(self, request: Request) -> Response:
        """Put a job back by its id; or, for callers that only have the call, enqueue that anew. Both in two minutes."""
        body = request.json()
        repeat = once(request, body)
        if "job_id" not in body:
            return self._accept(
                request, read_call(body, self._tasks, job_id=repeat.job_id, enqueue_in=putback.DELAY), repeat, 202
            )
        if extra := sorted(set(body) - {"job_id"}):
            raise HttpError(
                422, "invalid_value", f"{extra[0][:80]}: a job is put back as it is; send only job_id", field=extra[0][:80]
            )
        try:
            job_id = request.target = check_job_id(body["job_id"])
            check_job(self._connection, request, job_id)
            putback.put_back(job_id, nonce=repeat.nonce, connection=self._connection)
        except InvalidName as error:
            raise HttpError(422, "invalid_value", str(error), field="job_id") from None
        except NoSuchJobError as error:
            raise HttpError(404, "no_such_job", str(error)) from None
        except InvalidJobOperation as error:
            raise HttpError(409, "wrong_state", str(error)) from None
        except DependencyCycle as error:
            raise HttpError(409, "wrong_state", _told(request, error)) from None
        except DuplicateJob as error:
            self._check_met(request, error.duplicate_of)
            raise HttpError(409, "duplicate_job", str(error), field="unique_key") from None
        shown = PutBackView(job_id=job_id, status="scheduled", delay=putback.DELAY)
        return Response.view(shown, 202, {"Location": f"{request.prefix}/api/v1/jobs/{job_id}"})

    def _accept(self, request: Request, call: TaskCall, repeat: Once, status: int) -> Response:
        new = call.data.new
        if not request.scope.all:
            self._check_within(request, call)
        request.target = new.id
        broker = broker_of(self._connection)
        if repeat.job_id and not call.named:
            self._check_same(new.id, repeat)
        try:
            jobs = sealed(call.queue, [new], get_settings())
            accepted = broker.enqueue(call.queue, jobs, repeat.nonce, call.terms.replicas, call.terms.room)
        except QueueFull as error:
            raise HttpError(429, "queue_full", str(error), headers={"Retry-After": str(RETRY_AFTER)}) from None
        except BatchClosed as error:
            raise HttpError(409, "batch_closed", str(error)) from None
        except NoSuchBatchError as error:
            raise HttpError(422, "invalid_value", str(error), field="batch") from None
        except UnknownDependency as error:
            raise HttpError(422, "invalid_value", str(error), field="depends_on") from None
        except DependencyCycle as error:
            raise HttpError(422, "invalid_value", _told(request, error), field="depends_on") from None
        except DuplicateJob as error:
            self._check_met(request, error.duplicate_of)
            code = "duplicate_job" if call.named or not repeat.job_id or error.duplicate_of else "key_reused"
            raise HttpError(409, code, str(error)) from None
        (job,) = Chunk(call.queue, jobs, call.terms).accepted(accepted, self._connection)
        if job.duplicate_of != new.id:
            self._check_met(request, job.duplicate_of or "")
        due = ABSENT
        if job.duplicate_of == job.id:
            status = 200  # no new job was made
        elif job.last_status == "scheduled":
            # max_delay may have changed the time
            due = (job.scheduled_at() if job.duplicate_of else None) or _due(new, accepted)
        shown = AcceptedView(
            job_id=job.id,
            status=job.last_status or "gone",
            queue=job.origin,
            priority=job.priority,
            created_at=job.created_at,
            duplicate_of=job.duplicate_of or ABSENT,
            scheduled_at=due,
        )
        return Response.view(shown, status, {"Location": f"{request.prefix}/api/v1/jobs/{job.id}"})

    def _check_within(self, request: Request, call: TaskCall) -> None:
        new = call.data.new
        if "batch" in new.fields:
            raise HttpError(
                403, "all_queues", "batches span queues, and this token is restricted to some; leave batch out", field="batch"
            )
        parents = [member.lstrip("?~") for member in parents_of(new)]
        check_new(self._connection, request, call.queue, new.id, str(new.fields.get("unique_key") or ""), parents)

    def _check_met(self, request: Request, other: str) -> None:
        """Raise the error of a taken unique key if the caller may not see the job that has just taken it."""
        if other and not seen_jobs(self._connection, request.scope, [other]):
            raise taken()

    def _check_same(self, job_id: str, repeat: Once) -> None:
        """Raise 409 if the id made from this Idempotency-Key belongs to another request, whose ended job must not be overwritten."""
        (nonce,) = inspector_of(self._connection).fields(job_id, "nonce")
        if nonce is not None and nonce.decode("utf-8", "replace") != repeat.nonce:
            raise HttpError(
                409, "key_reused", "this Idempotency-Key came with another request before; use a new key for a new request"
            )


def _due(new: NewJob, accepted: str) -> datetime | None:
    moment = from_iso(accepted) if new.due is None else EPOCH + timedelta(seconds=new.due)
    return None if moment is None else moment + timedelta(seconds=new.delay or 0)


def _told(request: Request, error: DependencyCycle) -> str:
    """Return the error's text. It names other jobs only to an unrestricted caller."""
    return str(error) if request.scope.all else str(DependencyCycle.of(error.job_id))
