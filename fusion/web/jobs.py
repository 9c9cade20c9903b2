"""Search of jobs over HTTP: `/api/v1/jobs`."""

from __future__ import annotations

from redis import Redis

from fusion.exceptions import InvalidQuery
from fusion.store.access import search_inspector_of
from fusion.store.query.grammar import Query
from fusion.store.read.search_inspector import LARGEST_PAGE, in_words
from fusion.store.read.tolerant import forgiving
from fusion.views.job import FoundJobView, JobsView
from fusion.web.exchange import HttpError, Request, Response, whole
from fusion.web.routing import Param, Route
from fusion.web.within import told

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
            )
        )
