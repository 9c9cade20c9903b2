"""The JSON API: `/api/v1`, `/retryTask/` and the probes. Every change goes through the Broker, as everybody's does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from redis import Redis

from fusion.enqueue.build import sealed
from fusion.enqueue.chunk import Chunk
from fusion.exceptions import (
    BatchClosed,
    DuplicateJob,
    InvalidJobOperation,
    InvalidName,
    NoSuchBatchError,
    NoSuchJobError,
    QueueFull,
)
from fusion.job import Job
from fusion.jobs.tree import LARGEST, tree
from fusion.kernel.timeutil import EPOCH, from_iso, to_iso
from fusion.settings import get_settings
from fusion.store.access import broker_of, inspector_of, limit_inspector_of
from fusion.store.layout.names import check_job_id
from fusion.store.layout.records import NewJob
from fusion.store.read.tolerant import forgiving, in_words
from fusion.web import putback
from fusion.web.batches import Batches
from fusion.web.calls import Call, read_call, read_pause, read_since
from fusion.web.exchange import RETRY_AFTER, HttpError, Request, Response, whole
from fusion.web.idempotency import Once, once
from fusion.web.kept_verdict import KeptVerdict
from fusion.web.routing import Route
from fusion.web.views import history_view, job_view, queue_view

NO_SUCH_QUEUE = "no job was ever enqueued to a queue of this name; GET /api/v1/queues lists them"
#: Queues of one page.
_PAGE, _LARGEST_PAGE = 100, 1000


class Api:
    """The calls of the API. `tasks`: modules whose functions callers may name. `stopping`: tells if the process is about to end."""

    def __init__(self, connection: Redis, tasks: Sequence[str], stopping: Callable[[], bool] = lambda: False) -> None:
        self._connection, self._tasks, self._stopping = connection, tuple(tasks), stopping
        self._verdict = KeptVerdict(connection)

    def routes(self) -> list[Route]:
        """The table of what is answered where."""
        return [
            Route("GET", "/healthz", self.health, None, "health"),
            Route("GET", "/readyz", self.ready, None, "ready"),
            Route("POST", "/retryTask/", self.retry_task, "operate", "retry_task"),
            Route("POST", "/retryTask", self.retry_task, "operate", "retry_task"),
            Route("POST", "/api/v1/jobs", self.enqueue, "operate", "enqueue"),
            Route("GET", "/api/v1/jobs/{id}", self.job, "read", "job"),
            Route("GET", "/api/v1/jobs/{id}/tree", self.tree, "read", "tree"),
            Route("POST", "/api/v1/jobs/{id}/stop", self.stop, "operate", "stop"),
            Route("GET", "/api/v1/queues", self.queues, "read", "queues"),
            Route("GET", "/api/v1/queues/{name}/stats", self.stats, "read", "stats"),
            Route("GET", "/api/v1/keys/{key}/stats", self.key_stats, "read", "key_stats"),
            Route("POST", "/api/v1/queues/{name}/pause", self.pause, "admin", "pause"),
            Route("POST", "/api/v1/queues/{name}/resume", self.resume, "admin", "resume"),
            *Batches(self._connection).routes(),
        ]

    # -- probes

    def health(self, request: Request) -> Response:
        """200 if this process and its Redis answer."""
        inspector_of(self._connection).now()
        return Response.json({"status": "ok"})

    def ready(self, request: Request) -> Response:
        """200 if requests should be sent here: as `health`, and the process is neither about to end nor too old for the data; else 503. With the
        verdict in a word: a fleet that is unhealthy needs requests here no less."""
        if self._stopping():
            raise HttpError(503, "stopping", "this process is about to end; ask another")
        broker_of(self._connection).check_writer()
        inspector_of(self._connection).now()
        return Response.json({"status": "ok", "verdict": self._verdict.word()})

    # -- jobs

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
            putback.put_back(job_id, nonce=repeat.nonce, connection=self._connection)
        except InvalidName as error:
            raise HttpError(422, "invalid_value", str(error), field="job_id") from None
        except NoSuchJobError as error:
            raise HttpError(404, "no_such_job", str(error)) from None
        except InvalidJobOperation as error:
            raise HttpError(409, "wrong_state", str(error)) from None
        document = {"job_id": job_id, "status": "scheduled", "delay": putback.DELAY}
        return Response.json(document, 202, {"Location": f"{request.prefix}/api/v1/jobs/{job_id}"})

    def _accept(self, request: Request, call: Call, repeat: Once, status: int) -> Response:
        new = call.data.new
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
        except DuplicateJob as error:
            code = "duplicate_job" if call.named or not repeat.job_id or error.duplicate_of else "key_reused"
            raise HttpError(409, code, str(error)) from None
        (job,) = Chunk(call.queue, jobs, call.terms).accepted(accepted, self._connection)
        document: dict[str, Any] = {
            "job_id": job.id,
            "status": job.last_status or "gone",
            "queue": job.origin,
            "priority": job.priority,
            "created_at": job.created_at and to_iso(job.created_at),
        }
        if job.duplicate_of:
            document["duplicate_of"] = job.duplicate_of
        if job.duplicate_of == job.id:
            status = 200  # nothing came into being
        elif document["status"] == "scheduled":
            due = job.scheduled_at() if job.duplicate_of else None  # max_delay may have had a say
            document["scheduled_at"] = to_iso(due) if due else _due(new, accepted)
        return Response.json(document, status, {"Location": f"{request.prefix}/api/v1/jobs/{job.id}"})

    def _check_same(self, job_id: str, repeat: Once) -> None:
        """An id made of a key is that key's alone: an ended job of other content must not be written over."""
        (nonce,) = inspector_of(self._connection).fields(job_id, "nonce")
        if nonce is not None and nonce.decode("utf-8", "replace") != repeat.nonce:
            raise HttpError(
                409, "key_reused", "this Idempotency-Key came with another request before; use a new key for a new request"
            )

    def job(self, request: Request) -> Response:
        """Show one job; its result and reason only to who may operate."""
        include = {part for part in request.args().get("include", "").split(",") if part}
        if unknown := sorted(include - {"result"}):
            raise HttpError(
                422, "invalid_value", f"include: {unknown[0][:80]!r} is not known; use include=result", field="include"
            )
        if include:
            request.require("operate")
        looking, broken = forgiving(self._connection)
        try:
            job_id = check_job_id(request.params["id"])
            return Response.json(job_view(looking, job_id, details=bool(include)))
        except (InvalidName, NoSuchJobError) as error:
            _check_sound(broken)
            raise HttpError(404, "no_such_job", str(error)) from None

    def tree(self, request: Request) -> Response:
        """Show the graph around a job."""
        limit = max(1, whole(request.args(), "limit", LARGEST, LARGEST))
        looking, broken = forgiving(self._connection)
        try:
            return Response.json(tree(inspector_of(looking), check_job_id(request.params["id"]), limit).document())
        except (InvalidName, NoSuchJobError) as error:
            _check_sound(broken)
            raise HttpError(404, "no_such_job", str(error)) from None

    def stop(self, request: Request) -> Response:
        """End a job: 200 if it waited and is stopped, 202 if it runs and its worker was told."""
        try:
            job_id = request.target = check_job_id(request.params["id"])
            answer = Job(job_id, {}, self._connection).stop()
        except (InvalidName, NoSuchJobError) as error:
            raise HttpError(404, "no_such_job", str(error)) from None
        except InvalidJobOperation as error:
            raise HttpError(409, "wrong_state", str(error)) from None
        pending = answer == "pending"
        document = {"job_id": job_id, "status": "started" if pending else answer, "pending": pending}
        return Response.json(document, 202 if pending else 200)

    # -- queues

    def queues(self, request: Request) -> Response:
        """Show a page of queues, by name."""
        looking, broken = forgiving(self._connection)
        inspector = inspector_of(looking)
        args = request.args()
        offset, limit = whole(args, "offset", 0, 10**9), whole(args, "limit", _PAGE, _LARGEST_PAGE)
        names = inspector.queue_names()
        page = names[offset : offset + limit]
        moment = inspector.now()
        shown = [queue_view(info, moment) for info in inspector.queues(page)]
        keyless = [one.document() for one in inspector.keyless()]
        return Response.json(
            {"queues": shown, "total": len(names), "offset": offset, "keyless": keyless, "broken": in_words(broken)}
        )

    def stats(self, request: Request) -> Response:
        """Show one queue."""
        name = request.params["name"]
        looking, broken = forgiving(self._connection)
        inspector = inspector_of(looking)
        if name not in inspector.queue_names():
            _check_sound(broken)
            raise HttpError(404, "no_such_queue", NO_SUCH_QUEUE)
        stats = inspector.stats(name)
        view = queue_view(stats.info, stats.last_updated) | stats.counters.document()
        if since := request.args().get("since"):
            view |= history_view(inspector.history("queue", name, read_since(since)))
        return Response.json(view)

    def key_stats(self, request: Request) -> Response:
        """Show one concurrency key: its limit, its slots and what became of its jobs."""
        key = request.params["key"]
        looking, broken = forgiving(self._connection)
        (info,) = limit_inspector_of(looking).limits([key])
        if info is None:
            _check_sound(broken)
            raise HttpError(404, "no_such_key", "no job had this concurrency key within a day, and nothing is set for it")
        inspector = inspector_of(looking)
        counters, _, _ = inspector.key_counters(key)
        return Response.json({**info.document(), **counters.document(), "last_updated": to_iso(inspector.now())})

    def pause(self, request: Request) -> Response:
        """Let no job of a queue be started, for a time or until `resume`."""
        queue, wish = self._known(request), read_pause(request.json())
        by = request.actor.name if request.actor else ""
        broker_of(self._connection).pause(queue, wish.duration, by=by, reason=wish.reason)
        (info,) = inspector_of(self._connection).queues([queue])
        return Response.json(queue_view(info, inspector_of(self._connection).now()))

    def resume(self, request: Request) -> Response:
        """Start its jobs again; tells of the pause that is over, null if there was none."""
        queue = self._known(request)
        was = broker_of(self._connection).unpause(queue)
        return Response.json({"name": queue, "paused": False, "was": was and was.document(inspector_of(self._connection).now())})

    def _known(self, request: Request) -> str:
        name = request.target = request.params["name"]
        if name not in inspector_of(self._connection).queue_names():
            raise HttpError(404, "no_such_queue", NO_SUCH_QUEUE)
        return name


def _check_sound(broken: Mapping[str, str]) -> None:
    """Raise 500 if a broken key hides something: that is not said to be missing."""
    for sentence in in_words(broken):
        raise HttpError(500, "broken_key", f"{sentence}; an operator has to look who else writes to this Redis")


def _due(new: NewJob, accepted: str) -> str | None:
    moment = from_iso(accepted) if new.due is None else EPOCH + timedelta(seconds=new.due)
    return None if moment is None else to_iso(moment + timedelta(seconds=new.delay or 0))
