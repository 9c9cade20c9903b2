"""Jobs over HTTP: `/api/v1/jobs`, and one job below it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from redis import Redis

from fusion.enqueue.copying import Edit, copied, note_copy, original, send
from fusion.exceptions import (
    BadSignature,
    DependencyCycle,
    DuplicateJob,
    InvalidJobOperation,
    InvalidName,
    InvalidQuery,
    NoSuchJobError,
    OptionError,
    PayloadTooLarge,
    QueueFull,
)
from fusion.job import Job
from fusion.jobs.tree import LARGEST, tree
from fusion.kernel.timeutil import parse_moment, parse_seconds
from fusion.settings import get_settings
from fusion.store.access import inspector_of, search_inspector_of, sheet_inspector_of, trash_inspector_of
from fusion.store.layout.codec import text
from fusion.store.layout.names import check_job_id
from fusion.store.query.grammar import Query
from fusion.store.read.search_inspector import LARGEST_PAGE, in_words
from fusion.store.read.tolerant import forgiving
from fusion.views.job import (
    CalledOffView,
    CopiedView,
    DeletedView,
    FoundJobView,
    JobsView,
    RequeuedView,
    RescheduledView,
    TreeView,
)
from fusion.views.job_sheet import JobView, read_job
from fusion.views.revealed import RevealedView
from fusion.web.calls import PURGE, check_task, read_edit
from fusion.web.exchange import RETRY_AFTER, HttpError, Request, Response, flag, listed, whole
from fusion.web.idempotency import Once, once
from fusion.web.openapi.shapes import TEXT, fields, maybe, none_or
from fusion.web.routing import Body, Param, Route, change
from fusion.web.within import check_job, check_new, check_sound, seen_jobs, taken, told

_PAGE = 50
_PARAMS = (
    Param("query", "The query, like `state:failed error:Timeout newer:1h`; without it all jobs."),
    Param("limit", "Jobs of one page.", "integer", _PAGE, LARGEST_PAGE),
    Param("after", "The `after` of the page before."),
)


class Jobs:
    """The routes that search jobs."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route("GET", "/api/v1/jobs", self.listed, "read", "jobs", _PARAMS, answer=JobsView, by_queue=True, rows="jobs")]

    def listed(self, request: Request) -> Response:
        """Show a page of the jobs that a query matches."""
        args = request.args()
        looking, broken = forgiving(self._connection)
        limit = max(1, whole(args, "limit", _PAGE, LARGEST_PAGE))
        try:
            query = Query.parse(args.get("query", ""))
            page = search_inspector_of(looking).page(query, request.scope, limit, args.get("after", ""))
        except InvalidQuery as error:
            code = "invalid_query" if error.field == "query" else "invalid_value"
            raise HttpError(422, code, str(error), field=error.field) from None
        return Response.view(
            JobsView(
                query=query.text,
                jobs=[FoundJobView.of(job) for job in page.jobs],
                after=page.after or None,
                looked=page.looked,
                total=page.total,
                complete=page.complete,
                note=in_words(page.searched) or None,
                broken=told(request.scope, broken),
            ),
            scopes=request.scopes,
        )


# -- one job: `/api/v1/jobs/{id}` and below


#: Further parts of a job that a request may ask for; its data need the scope `operate`.
INCLUDES = ("events", "result", "arguments", "trace", "log")
_INCLUDE = Param(
    "include",
    "Names with commas between them. `events`: its events that are still in the stream, which also complete its timeline. Only for tokens with "
    "operate: `result`: the result, reason and runs, unmasked; `arguments`: the arguments and error texts, masked; `trace`: the masked traceback; "
    "`log`: what it printed and logged last, masked.",
)
_LIMIT = Param("limit", "Jobs of the graph.", "integer", LARGEST, LARGEST)
_PURGE = Param("purge", "For good, not into the trash.", "boolean")

_EDIT = Body(
    "Edit",
    fields(
        args=maybe({"type": ["array", "null"]}),
        kwargs=maybe({"type": ["object", "null"]}),
        queue=maybe(none_or(TEXT)),
        priority=maybe({"type": ["string", "integer", "null"]}),
    ),
)


class OneJob:
    """The routes of one job. `tasks`: modules whose functions callers may run with arguments of their own."""

    def __init__(self, connection: Redis, tasks: Sequence[str] = ()) -> None:
        self._connection, self._tasks = connection, tuple(tasks)

    def routes(self) -> list[Route]:
        """Return the routes."""
        one = "/api/v1/jobs/{id}"
        return [
            Route("GET", one, self.job, "read", "job", (_INCLUDE,), answer=JobView, by_queue=True),
            change(one, self.delete, "delete", params=(_PURGE,), method="DELETE", answer=DeletedView, by_queue=True),
            change(
                f"{one}/delete",
                self.delete,
                "delete",
                called="delete_by_post",
                body=PURGE,
                answer=DeletedView,
                by_queue=True,
            ),
            Route("GET", f"{one}/tree", self.tree, "read", "tree", (_LIMIT,), answer=TreeView, by_queue=True, rows="nodes"),
            change(
                f"{one}/cancel",
                self.cancel,
                "cancel",
                answer=CalledOffView,
                statuses=(200, 202),
                by_queue=True,
            ),
            change(f"{one}/stop", self.stop, "stop", answer=CalledOffView, statuses=(200, 202), by_queue=True),
            change(
                f"{one}/copy",
                self.copy,
                "copy",
                body=_EDIT,
                answer=CopiedView,
                statuses=(201,),
                keyed=True,
                by_queue=True,
            ),
            change(f"{one}/reveal", self.reveal, "reveal", answer=RevealedView, by_queue=True),
            change(f"{one}/requeue", self.requeue, "requeue", answer=RequeuedView, keyed=True, by_queue=True),
        ]

    def job(self, request: Request) -> Response:
        """Show all details of one job; its data only to callers with the scope operate."""
        include = {part for part in request.args().get("include", "").split(",") if part}
        if unknown := sorted(include - {*INCLUDES}):
            told = f"include: {unknown[0][:80]!r} is not known; use include={listed(INCLUDES)}"
            raise HttpError(422, "invalid_value", told, field="include")
        if include - {"events"}:
            request.require("operate")
        looking, broken = forgiving(self._connection)
        try:
            job_id, stream = check_job_id(request.params["id"]), "events" in include
            found = read_job(sheet_inspector_of(looking), job_id, request.scope, stream=stream)
            about, raw = "arguments" in include, "result" in include
            shown = JobView.of(found, about=about, trace="trace" in include, log="log" in include, raw=raw)
            return Response.view(shown, scopes=request.scopes)
        except (InvalidName, NoSuchJobError) as error:
            check_sound(request, broken)
            way = f"POST /api/v1/trash/{request.params['id']}/restore"
            entry = trash_inspector_of(looking).one(request.params["id"])
            hint = f"; it is in the trash: {way} brings it back" if entry and request.scope.allows(entry.queue) else ""
            raise HttpError(404, "no_such_job", f"{error}{hint}") from None

    def tree(self, request: Request) -> Response:
        """Show the graph around a job."""
        limit = max(1, whole(request.args(), "limit", LARGEST, LARGEST))
        looking, broken = forgiving(self._connection)
        try:
            job_id = check_job(looking, request, request.params["id"])
            return Response.view(TreeView.of(tree(inspector_of(looking), job_id, limit, request.scope)))
        except (InvalidName, NoSuchJobError) as error:
            check_sound(request, broken)
            raise HttpError(404, "no_such_job", str(error)) from None

    def cancel(self, request: Request) -> Response:
        """Cancel a job: 200 if it waited and is canceled, 202 if it runs and will not be retried."""
        with self._named(request) as job:
            answer = job.cancel()
        return _called_off(job.id, answer)

    def stop(self, request: Request) -> Response:
        """Stop a job: 200 if it waited and is stopped, 202 if it runs and its worker was sent the command."""
        with self._named(request) as job:
            answer = job.stop()
        return _called_off(job.id, answer)

    def requeue(self, request: Request) -> Response:
        """Requeue an ended job, behind those that wait; once for each Idempotency-Key."""
        nonce = once(request, {}).nonce
        with self._named(request) as job:
            try:
                job.requeue(nonce=nonce)
            except DuplicateJob as error:
                if not seen_jobs(self._connection, request.scope, [error.duplicate_of]):
                    raise taken() from None
                raise HttpError(409, "duplicate_job", str(error), field="unique_key") from None
            except DependencyCycle as error:
                text = str(error) if request.scope.all else str(DependencyCycle.of(job.id))
                raise HttpError(409, "wrong_state", text) from None
            return Response.view(RequeuedView(job_id=job.id, status=job.get_status()))

    def copy(self, request: Request) -> Response:
        """Enqueue an edited copy of a job that has ended; once for each Idempotency-Key."""
        body = request.json()
        repeat, edit = once(request, body), read_edit(body)
        with self._named(request) as job:
            if repeat.job_id and self._is_made(repeat):
                made = Job.fetch(repeat.job_id, self._connection)
                note_copy(self._connection, job.id, made.id)
            else:
                made = self._copy(request, job.id, edit, repeat)
        shown = CopiedView(job_id=made.id, status=made.last_status or "gone", queue=made.origin, copied_from=job.id)
        return Response.view(shown, 201, {"Location": f"{request.prefix}/api/v1/jobs/{made.id}"})

    def _is_made(self, repeat: Once) -> bool:
        """Return True if this same request has made its copy before. 409 if its key belongs to another request."""
        (nonce,) = inspector_of(self._connection).fields(repeat.job_id, "nonce")
        if nonce is not None and text(nonce) != repeat.nonce:
            raise HttpError(
                409, "key_reused", "this Idempotency-Key came with another request before; use a new key for a new request"
            )
        return nonce is not None

    def _copy(self, request: Request, job_id: str, edit: Edit, repeat: Once) -> Job:
        try:
            row = original(self._connection, job_id)
            queue, data = copied(job_id, row, edit, get_settings(), repeat.job_id, repeat.nonce)
            check_task(data.func_name, self._tasks)
            check_new(self._connection, request, queue, data.new.id, "", ())
            return send(self._connection, job_id, queue, data)
        except BadSignature as error:
            raise HttpError(409, "bad_signature", str(error)) from None
        except PayloadTooLarge as error:
            raise HttpError(413, "payload_too_large", str(error)) from None
        except OptionError as error:
            raise HttpError(422, "invalid_value", str(error), field=re.split(r"[.\[]", error.name)[0]) from None
        except QueueFull as error:
            raise HttpError(429, "queue_full", str(error), headers={"Retry-After": str(RETRY_AFTER)}) from None

    def reveal(self, request: Request) -> Response:
        """Show the data of one job without masks. The audit has an entry of it first: if that can't be written, nothing is shown."""
        if request.actor is None or (request.actor.anonymous and not request.actor.local):
            raise HttpError(403, "not_local", "without tokens, masked values are shown only to this machine itself; use a token")
        looking, broken = forgiving(self._connection)
        try:
            request.target = check_job_id(request.params["id"])
            found = read_job(sheet_inspector_of(looking), request.target, request.scope, stream=False)
        except (InvalidName, NoSuchJobError) as error:
            check_sound(request, broken)
            raise HttpError(404, "no_such_job", str(error)) from None
        return Response.view(RevealedView.of(found), scopes=request.scopes)

    def delete(self, request: Request) -> Response:
        """Delete a job that is not running. The trash keeps it for an hour, unless `purge`."""
        asked = request.args() if request.method == "DELETE" else request.told("purge")
        purge = flag(asked.get("purge", False), "purge")
        with self._named(request) as job:
            job.get_status()
            kept = job.delete(purge=purge)
        return Response.view(DeletedView(job_id=job.id, deleted=True, kept=int(kept)))

    @contextmanager
    def _named(self, request: Request) -> Iterator[Job]:
        """Yield the job that the path names, and turn errors of the block into answers."""
        try:
            request.target = check_job_id(request.params["id"])
            yield Job(check_job(self._connection, request, request.target), {}, self._connection)
        except (InvalidName, NoSuchJobError) as error:
            raise HttpError(404, "no_such_job", str(error)) from None
        except InvalidJobOperation as error:
            raise HttpError(409, "wrong_state", str(error)) from None


def _called_off(job_id: str, answer: str) -> Response:
    pending = answer == "pending"
    shown = CalledOffView(job_id=job_id, status="started" if pending else answer, pending=pending)
    return Response.view(shown, 202 if pending else 200)


_BODY = Body("Reschedule", fields(when={"description": "Seconds from now, 90s, 5m, 2h, 1d, or a time with its zone; 0 is now."}))


class Reschedule:
    """The call that moves a scheduled job."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def routes(self) -> list[Route]:
        """Return the routes."""
        path = "/api/v1/jobs/{id}/reschedule"
        return [
            change(path, self.move, "reschedule", body=_BODY, answer=RescheduledView, by_queue=True),
        ]

    def move(self, request: Request) -> Response:
        """Reschedule a job that waits for a time, or for a retry, to a time with its zone or a delay from now; 0 is now."""
        request.target = request.params["id"]
        body = request.json()
        if unknown := sorted(body.keys() - {"when"}):
            raise HttpError(
                422, "invalid_value", f"there is no field {unknown[0][:80]} here; there is when", field=unknown[0][:80]
            )
        try:
            job = Job(check_job(self._connection, request, check_job_id(request.target)), {}, self._connection)
            due = job.reschedule(_when(body.get("when")))
        except (InvalidName, NoSuchJobError) as error:
            raise HttpError(404, "no_such_job", str(error)) from None
        except InvalidJobOperation as error:
            raise HttpError(409, "wrong_state", str(error)) from None
        except (ValueError, TypeError) as error:
            raise HttpError(422, "invalid_value", f"when: {str(error).removeprefix('reschedule: ')}", field="when") from None
        return Response.view(RescheduledView(job_id=job.id, due_at=due))


def _when(given: object) -> datetime | float:
    """Return the given time as seconds from now or as a moment; ValueError for anything else."""
    if isinstance(given, bool) or not isinstance(given, (int, float, str)):
        raise ValueError('use seconds, a text like "5m", or a time with its zone')
    if not isinstance(given, str):
        return given
    try:
        return parse_seconds(given.removeprefix("+"))
    except ValueError:
        return parse_moment(given)
