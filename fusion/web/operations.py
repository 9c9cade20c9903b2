"""Bulk operations over HTTP: `/api/v1/operations`. They are started here; workers and schedulers run them."""

from __future__ import annotations

import re

from redis import Redis

from fusion.exceptions import InvalidQuery
from fusion.operations import desk
from fusion.operations.actions import ACTIONS
from fusion.operations.impact import measure
from fusion.operations.plan import OperationPlan
from fusion.operations.record import Operation
from fusion.store.access import broker_of, search_inspector_of
from fusion.views.operation import OperationPlannedView, OperationsView, OperationView, views_of
from fusion.web.exchange import HttpError, Request, Response, flag, whole
from fusion.web.idempotency import Once, once
from fusion.web.openapi.shapes import FLAG, fields, maybe, one_of
from fusion.web.routing import Body, Route, change, paging

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
#: Operations of one page: the default and the most.
_PAGE, _LARGEST_PAGE = 100, 1000
#: Seconds that an answer may take to count the matching jobs.
_COUNTING = 5.0
_FIELDS = ("action", "query", "dry_run", "reason", "priority", "purge")

_OPERATE = Body(
    "Operate",
    fields(
        action=one_of(*ACTIONS),
        query={"type": "string", "description": "Which jobs; without a state: those of the action's own states."},
        dry_run=maybe(FLAG),
        reason=maybe({"type": "string", "description": "For quarantine: the reason."}),
        purge=maybe({"type": "boolean", "description": "For delete: for good, not into the trash."}),
        priority=maybe({"description": "For reprioritise: high, moderate, low or 0 to 255."}),
    ),
)


class Operations:
    """The routes of operations."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def routes(self) -> list[Route]:
        """Return the routes."""
        path, pages = "/api/v1/operations", paging("Operations", _PAGE, _LARGEST_PAGE)
        return [
            change(
                path,
                self.begin,
                "operation",
                body=_OPERATE,
                statuses=(202, 200),
                keyed=True,
                answer=OperationView | OperationPlannedView,
                by_queue=True,
            ),
            Route("GET", path, self.listed, "read", "operations", pages, answer=OperationsView, by_queue=True, rows="operations"),
            Route("GET", f"{path}/{{id}}", self.one, "read", "operation_show", answer=OperationView, by_queue=True),
            change(f"{path}/{{id}}/cancel", self.cancel, "operations_cancel", answer=OperationView, by_queue=True),
        ]

    def begin(self, request: Request) -> Response:
        """Start an operation (202), or with `dry_run` show what it would change (200). With a token for some queues it takes only jobs of these.
        Takes effect once for each Idempotency-Key."""
        body = request.json()
        repeat = once(request, body)
        if extra := sorted(set(body) - set(_FIELDS)):
            raise _invalid(extra[0][:80], f"{extra[0][:80]!r} is not a field of an operation; use {', '.join(_FIELDS)}")
        dry_run, purge = (flag(body.get(name, False), name) for name in ("dry_run", "purge"))
        texts = {name: body.get(name) or "" for name in ("action", "query", "reason")}
        for name, value in texts.items():
            if not isinstance(value, str):
                raise _invalid(name, f"{name}: use a text")
        if texts["action"] in ACTIONS:
            request.require(ACTIONS[texts["action"]].role)
        try:
            plan = OperationPlan.of(
                texts["action"],
                texts["query"],
                reason=texts["reason"],
                priority=body.get("priority"),
                scope=request.scope,
                purge=purge,
            )
        except InvalidQuery as error:
            raise HttpError(422, "invalid_query", str(error), field="query") from None
        except ValueError as error:
            raise _invalid(str(error).partition(" ")[0].rstrip(":"), str(error)) from None
        if not dry_run and (made := self._made(repeat)):
            return self._begun(request, made)
        impact = measure(search_inspector_of(self._connection), plan, _COUNTING)
        if dry_run:
            request.target = "dry-run"
            return Response.view(OperationPlannedView.of(plan, impact))
        within = None if request.scope.queues is None else request.scope.queues
        try:
            operation = desk.begin(
                self._connection,
                plan,
                request.who(),
                impact.matched,
                within,
                operation=repeat.job_id,
                nonce=repeat.nonce if repeat.job_id else "",
            )
        except desk.TooManyOperations as error:
            raise HttpError(429, "too_many_operations", str(error), headers={"Retry-After": "60"}) from None
        return self._begun(request, self._made(repeat) or self._find(request, operation))

    def _made(self, repeat: Once) -> Operation | None:
        """Return the operation that this same request started before, if any; 409 if its key belongs to another request."""
        found = desk.find(self._connection, repeat.job_id) if repeat.job_id else None
        if found is not None and found.nonce != repeat.nonce:
            raise HttpError(
                409, "key_reused", "this Idempotency-Key came with another request before; use a new key for a new request"
            )
        return found

    def _begun(self, request: Request, found: Operation) -> Response:
        request.target = found.id
        return Response.view(self._view(found), 202, {"Location": f"{request.prefix}/api/v1/operations/{found.id}"})

    def listed(self, request: Request) -> Response:
        """Show a page of operations: running ones, then the most recently ended. A token for some queues sees those that are limited to these."""
        args = request.args()
        offset, limit = whole(args, "offset", 0, 10**9), whole(args, "limit", _PAGE, _LARGEST_PAGE)
        if request.scope.all:
            found, total = desk.listed(self._connection, offset, limit)
        else:
            seen, _ = desk.listed(self._connection, 0, 2 * _LARGEST_PAGE)
            own = [one for one in seen if one.visible(request.scope)]
            found, total = own[offset : offset + limit], len(own)
        return Response.view(OperationsView(operations=views_of(self._connection, found), total=total, offset=offset))

    def one(self, request: Request) -> Response:
        """Show one operation: its progress, what it left out, and why."""
        return Response.view(self._view(self._find(request, request.params["id"])))

    def cancel(self, request: Request) -> Response:
        """Cancel an operation: it changes no further job."""
        name = request.target = request.params["id"]
        action = self._find(request, name).action
        if action in ACTIONS:
            request.require(ACTIONS[action].role)
        answer = broker_of(self._connection).cancel_operation(name, request.who())
        if answer != "canceled":
            raise HttpError(409, "wrong_state", f"operation {name} can't be canceled: it is {answer}")
        return Response.view(self._view(self._find(request, name)))

    def _find(self, request: Request, name: str) -> Operation:
        found = desk.find(self._connection, name) if _ID.fullmatch(name) else None
        if found is None or not found.visible(request.scope):
            raise HttpError(404, "no_such_operation", "there is no operation of this id; GET /api/v1/operations lists them")
        return found

    def _view(self, found: Operation) -> OperationView:
        return views_of(self._connection, [found])[0]


def _invalid(field: str, message: str) -> HttpError:
    return HttpError(422, "invalid_value", message, field=field)
