"""One job over HTTP: `/api/v1/jobs/{id}` and below."""

from __future__ import annotations

from redis import Redis

from fusion.exceptions import InvalidJobOperation, InvalidName, NoSuchJobError
from fusion.job import Job
from fusion.jobs.tree import LARGEST, tree
from fusion.store.access import inspector_of
from fusion.store.layout.names import check_job_id
from fusion.store.read.tolerant import forgiving
from fusion.web.exchange import HttpError, Request, Response, whole
from fusion.web.routing import Param, Route
from fusion.web.views import job_view
from fusion.web.within import check_job, check_sound

_INCLUDE = (Param("include", "`result`: also its result, reason and runs, for tokens with operate.", choices=("result",)),)
_LIMIT = (Param("limit", "Jobs of the graph.", "integer", LARGEST, LARGEST),)


class OneJob:
    """The calls about one job."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def routes(self) -> list[Route]:
        """What is answered where."""
        return [
            Route("GET", "/api/v1/jobs/{id}", self.job, "read", "job", _INCLUDE, answer="Job", by_queue=True),
            Route("GET", "/api/v1/jobs/{id}/tree", self.tree, "read", "tree", _LIMIT, answer="Tree", by_queue=True, rows="nodes"),
            Route("POST", "/api/v1/jobs/{id}/stop", self.stop, "operate", "stop", answer="Stopped", by_queue=True),
        ]

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
            job_id = check_job(looking, request, request.params["id"])
            return Response.json(job_view(looking, job_id, details=bool(include)))
        except (InvalidName, NoSuchJobError) as error:
            check_sound(request, broken)
            raise HttpError(404, "no_such_job", str(error)) from None

    def tree(self, request: Request) -> Response:
        """Show the graph around a job."""
        limit = max(1, whole(request.args(), "limit", LARGEST, LARGEST))
        looking, broken = forgiving(self._connection)
        try:
            job_id = check_job(looking, request, request.params["id"])
            return Response.json(tree(inspector_of(looking), job_id, limit, request.scope).document())
        except (InvalidName, NoSuchJobError) as error:
            check_sound(request, broken)
            raise HttpError(404, "no_such_job", str(error)) from None

    def stop(self, request: Request) -> Response:
        """End a job: 200 if it waited and is stopped, 202 if it runs and its worker was told."""
        try:
            request.target = check_job_id(request.params["id"])
            job_id = check_job(self._connection, request, request.target)
            answer = Job(job_id, {}, self._connection).stop()
        except (InvalidName, NoSuchJobError) as error:
            raise HttpError(404, "no_such_job", str(error)) from None
        except InvalidJobOperation as error:
            raise HttpError(409, "wrong_state", str(error)) from None
        pending = answer == "pending"
        document = {"job_id": job_id, "status": "started" if pending else answer, "pending": pending}
        return Response.json(document, 202 if pending else 200)
