"""The audit of changes over HTTP: every route that changes something is `recorded`, and `GET /api/v1/audit` shows the entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from functools import update_wrapper
from typing import TYPE_CHECKING

from redis import Redis

from fusion.audit import AuditedChange, outcome_of
from fusion.exceptions import InvalidName
from fusion.kernel.actions import ACTIONS
from fusion.store.access import audit_inspector_of, inspector_of
from fusion.store.layout.names import check_job_id
from fusion.store.read.audit_inspector import AuditFilter
from fusion.views.audit import AuditView, ChangeView
from fusion.web.calls import read_since
from fusion.web.exchange import HttpError, Request, Response, whole
from fusion.web.routing import Param, Route

if TYPE_CHECKING:
    from fusion.kernel.scope import Scope

#: Entries of one page: the default and the most.
_PAGE, _LARGEST_PAGE = 50, 1000
#: Most characters of a wildcard.
_LONGEST = 200


class Audit:
    """The route that shows who changed what."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def routes(self) -> list[Route]:
        """Return the routes."""
        params = (
            Param("limit", "Entries of the page.", "integer", _PAGE, _LARGEST_PAGE),
            Param("after", "Only entries older than this id: the `after` of the page before."),
            Param("since", "Only entries of this last time: seconds, or a text like 2h."),
            Param("who", "Only changes by these callers; a wildcard will do."),
            Param("action", "Only such changes; a wildcard will do."),
        )
        return [
            Route("GET", "/api/v1/audit", self.listed, "read", "audit", params, answer=AuditView, by_queue=True, rows="entries")
        ]

    def listed(self, request: Request) -> Response:
        """Show a page of what was changed, by whom and with what outcome, the newest first."""
        args = request.args()
        limit = max(1, whole(args, "limit", _PAGE, _LARGEST_PAGE))
        since = None
        if args.get("since"):
            since = inspector_of(self._connection).now() - timedelta(seconds=read_since(args["since"]))
        for name in ("who", "action"):
            if len(args.get(name, "")) > _LONGEST:
                raise HttpError(422, "invalid_value", f"{name}: use up to {_LONGEST} characters", field=name)
        wanted = AuditFilter(args.get("who", ""), args.get("action", ""), since, _allowed(request.scope))
        inspector = audit_inspector_of(self._connection)
        found = inspector.entries(wanted, limit, args.get("after", ""))
        after = found[-1].id if len(found) == limit else None
        missing = inspector.missing() if request.scope.all else None
        entries = [ChangeView.of(entry) for entry in found]
        return Response.view(AuditView(entries=entries, after=after, missing=missing))


def _allowed(scope: Scope) -> Callable[[tuple[str, ...]], bool]:
    return lambda queues: scope.all or (bool(queues) and all(map(scope.allows, queues)))


def recorded(routes: Iterable[Route], connection: Redis) -> list[Route]:
    """Return these routes. Those that change something write an audit entry before the change, and its outcome after it."""
    return [replace(route, handler=_Recorded(route, connection)) if is_recorded(route) else route for route in routes]


def is_recorded(route: Route) -> bool:
    """Return True if calls of this route are written to the audit."""
    return route.changes and ACTIONS[route.action].recorded


class _Recorded:
    """The handler of a route that also writes an audit entry."""

    def __init__(self, route: Route, connection: Redis) -> None:
        self._route, self._connection = route, connection
        update_wrapper(self, route.handler)

    def __call__(self, request: Request) -> Response:
        target, queues = " ".join(request.params.values()), self._queues(request)
        request.entry = entry = AuditedChange(
            self._connection, request.who(), self._route.action, target, queues, client=request.client
        )
        entry.asked()
        outcome = "ok"
        try:
            response = self._route.handler(request)
            outcome = "ok" if response.status < 400 else str(response.status)
            return response
        except HttpError as error:
            outcome = error.code
            raise
        except BaseException as error:
            outcome = outcome_of(error)
            raise
        finally:
            entry.target = request.target or entry.target
            entry.done(outcome=outcome)

    def _queues(self, request: Request) -> list[str]:
        """Return the queues that the request concerns, as far as its path shows them."""
        path, params = self._route.path, request.params
        if path.startswith("/api/v1/queues/{name}"):
            return [params["name"]]
        if not path.startswith("/api/v1/jobs/{id}"):
            return []
        try:
            (origin,) = inspector_of(self._connection).fields(check_job_id(params["id"]), "origin")
        except InvalidName:
            return []
        return [origin.decode("utf-8", "replace")] if origin else []
