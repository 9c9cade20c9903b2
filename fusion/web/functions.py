"""Functions over HTTP: the outcomes of their jobs, how long these waited and ran: `/api/v1/functions`."""

from __future__ import annotations

from redis import Redis

from fusion.store.access import inspector_of
from fusion.store.layout.history import OTHER
from fusion.store.read.tolerant import forgiving
from fusion.views.queue import FunctionListedView, FunctionStatsView, FunctionsView
from fusion.web.calls import read_since
from fusion.web.exchange import HttpError, Request, Response, whole
from fusion.web.routing import Param, Route, paging

#: Functions of one page: the default and the most, which is how many have a history of their own.
_PAGE, _LARGEST_PAGE = 50, 200
#: Hours that the list shows: a history by hour is read from one or two keys a function.
HOURS = 24
_SINCE = (Param("since", "How far back: by minute up to 1d, else by hour up to 30d.", default="1h"),)


class Functions:
    """The routes of functions. A history of functions is of all queues together."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def routes(self) -> list[Route]:
        """Return the routes."""
        one = "/api/v1/functions"
        return [
            Route(
                "GET",
                one,
                self.listed,
                "read",
                "functions",
                paging("Functions", _PAGE, _LARGEST_PAGE),
                answer=FunctionsView,
                rows="functions",
            ),
            Route("GET", one + "/{name}", self.one, "read", "function", _SINCE, answer=FunctionStatsView),
        ]

    def listed(self, request: Request) -> Response:
        """Show a page of functions with the outcomes and times of their jobs in the last day."""
        inspector, args = inspector_of(forgiving(self._connection)[0]), request.args()
        offset, limit = whole(args, "offset", 0, 10**9), whole(args, "limit", _PAGE, _LARGEST_PAGE)
        names = inspector.history_names("function")
        found = inspector.histories("function", [*names[offset : offset + limit], OTHER], HOURS)
        *shown, others = [FunctionListedView.of(name, steps) for name, steps in found.items()]
        left_out = others if any(step.counts for step in found[OTHER]) else None
        return Response.view(FunctionsView(functions=shown, total=len(names), offset=offset, hours=HOURS, left_out=left_out))

    def one(self, request: Request) -> Response:
        """Show one function: the outcomes of its jobs by minute or hour, how long they waited and ran, and the most that a run took."""
        name, inspector = request.params["name"], inspector_of(forgiving(self._connection)[0])
        since = read_since(request.args().get("since", "1h"))
        if name not in inspector.history_names("function"):
            raise HttpError(
                404,
                "no_such_function",
                "no job of this function ended within 31 days; GET /api/v1/functions lists those that did",
            )
        return Response.view(FunctionStatsView.of(name, *inspector.function_history(name, since)))
