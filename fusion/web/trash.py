"""Deleted jobs over HTTP: `/api/v1/trash`."""

from __future__ import annotations

from itertools import islice

from redis import Redis

from fusion.exceptions import InvalidName
from fusion.store.access import trash_inspector_of
from fusion.store.layout.names import check_job_id
from fusion.trash import Trash, why_not_restored
from fusion.views.trash import DeletedJobView, PurgedView, RestoredView, TrashView
from fusion.web.exchange import HttpError, Request, Response, whole
from fusion.web.routing import Route, change, paging

#: Jobs of one page: the default and the most.
_PAGE, _LARGEST_PAGE = 100, 1000
_ANSWERED = {"missing": (404, "no_such_job"), "full": (429, "queue_full")}


class TrashRoutes:
    """The routes of deleted jobs."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def routes(self) -> list[Route]:
        """Return the routes."""
        params = paging("Jobs", _PAGE, _LARGEST_PAGE)
        return [
            Route("GET", "/api/v1/trash", self.listed, "read", "trash", params, answer=TrashView, by_queue=True, rows="jobs"),
            change("/api/v1/trash/{id}/restore", self.restore, "trash_restore", answer=RestoredView, by_queue=True),
            change("/api/v1/trash/empty", self.empty, "trash_empty", answer=PurgedView),
        ]

    def listed(self, request: Request) -> Response:
        """Show a page of the jobs that were deleted within the last hour, the newest first. The totals are null for a token for some queues."""
        args, scope, inspector = request.args(), request.scope, trash_inspector_of(self._connection)
        offset, limit = whole(args, "offset", 0, 10**9), whole(args, "limit", _PAGE, _LARGEST_PAGE)
        total: int | None
        size: int | None
        if scope.all:
            found = inspector.page(offset, limit)
            total, size = inspector.count(), inspector.size()
        else:
            total, size = None, None
            found = list(islice((entry for entry in inspector.all() if scope.allows(entry.queue)), offset, offset + limit))
        jobs = [DeletedJobView.of(entry) for entry in found]
        return Response.view(TrashView(jobs=jobs, offset=offset, total=total, bytes=size))

    def restore(self, request: Request) -> Response:
        """Restore a deleted job."""
        try:
            job_id = request.target = check_job_id(request.params["id"])
        except InvalidName as error:
            raise HttpError(404, "no_such_job", str(error)) from None
        entry = trash_inspector_of(self._connection).one(job_id)
        if entry is None or not request.scope.allows(entry.queue):
            raise HttpError(404, "no_such_job", "there is no such job in the trash; GET /api/v1/trash lists them")
        if request.entry:
            request.entry.queues = (entry.queue,)
        restored, refused = Trash(self._connection).restore([job_id])
        if not restored:
            answer = refused[job_id]
            status, code = _ANSWERED.get(answer, (409, "wrong_state"))
            hidden = answer.startswith("duplicate ") and not request.scope.all
            if answer.startswith("cycle ") and not request.scope.all:
                raise HttpError(status, code, "it would wait for itself through other jobs")
            raise HttpError(status, code, "another job has its unique key now" if hidden else why_not_restored(answer))
        return Response.view(RestoredView(job_id=job_id, restored=True, status=entry.status, queue=entry.queue))

    def empty(self, request: Request) -> Response:
        """Remove all jobs from the trash for good."""
        request.told()
        purged = Trash(self._connection).empty()
        if request.entry:
            request.entry.changed(purged)
        return Response.view(PurgedView(purged=purged))
