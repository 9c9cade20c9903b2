"""Deliveries of callbacks over HTTP: `/api/v1/callbacks`."""

from __future__ import annotations

from itertools import islice

from redis import Redis

from fusion.callbacks import retry_deliveries
from fusion.store.access import broker_of, callback_inspector_of, inspector_of
from fusion.store.read.callback_inspector import STATUSES, DeliveryInfo
from fusion.store.read.tolerant import forgiving
from fusion.views.base import ABSENT
from fusion.views.delivery import CallbackRetriedView, CallbacksView, CallbackView
from fusion.web.exchange import HttpError, Request, Response, whole
from fusion.web.routing import Param, Route, change, paging

_PAGE, _LARGEST_PAGE, _LOOKED_AT = 100, 1000, 20_000
#: Deliveries read at most: of the failed ones the latest, of the scheduled ones those due next.
_NEAREST = 10_000
_PARAMS = (Param("status", "Only those.", choices=STATUSES), *paging("Deliveries", _PAGE, _LARGEST_PAGE))


class Callbacks:
    """The routes of deliveries. A delivery belongs to the queue of the job whose end it reports."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def routes(self) -> list[Route]:
        """Return the routes."""
        path = "/api/v1/callbacks"
        return [
            Route("GET", path, self.listed, "read", "callbacks", _PARAMS, answer=CallbacksView, by_queue=True, rows="callbacks"),
            Route("GET", f"{path}/{{id}}", self.one, "read", "callback", answer=CallbackView, by_queue=True),
            change(f"{path}/{{id}}/retry", self.retry, "callbacks_retry", answer=CallbackRetriedView, by_queue=True),
        ]

    def listed(self, request: Request) -> Response:
        """Show deliveries: open ones by their next try, ended ones by their end, the newest first. Only the host of a URL is shown."""
        args, (looking, _) = request.args(), forgiving(self._connection)
        status = args.get("status") or None
        if status is not None and status not in STATUSES:
            raise HttpError(422, "invalid_value", f"status: use {', '.join(STATUSES)}", field="status")
        offset, limit = whole(args, "offset", 0, 10**9), whole(args, "limit", _PAGE, _LARGEST_PAGE)
        inspector = callback_inspector_of(looking)
        every = inspector.find(status, _NEAREST)
        if not request.scope.all:
            every = islice(every, _LOOKED_AT)
        seen = (one for one in every if request.scope.allows(one.queue))
        found = list(islice(seen, offset, offset + limit + 1))
        all_ = request.scope.all
        return Response.view(
            CallbacksView(
                callbacks=[CallbackView.of(one) for one in found[:limit]],
                offset=offset,
                more=len(found) > limit,
                complete=inspector.is_within(_NEAREST) if all_ else ABSENT,
                dropped=inspector.dropped() if all_ else ABSENT,
                refused=inspector.refused() if all_ else ABSENT,
                gone=inspector.gone() if all_ else ABSENT,
            )
        )

    def one(self, request: Request) -> Response:
        """Show one delivery."""
        return Response.view(CallbackView.of(self._found(request)))

    def retry(self, request: Request) -> Response:
        """Retry a failed delivery under the same id. One that waits for its next try is tried now."""
        request.target = request.params["id"]
        found, refused = self._found(request), dict[str, str]()
        if found.status == "delivered":
            raise HttpError(409, "wrong_state", "it was delivered")
        if not retry_deliveries(broker_of(self._connection), inspector_of(self._connection).now().timestamp(), [found], refused):
            raise HttpError(409, "wrong_state", f"it can't be tried again: {refused[found.id]}")
        return Response.view(CallbackRetriedView(id=found.id, retried=True))

    def _found(self, request: Request) -> DeliveryInfo:
        found = callback_inspector_of(forgiving(self._connection)[0]).one(request.params["id"])
        if found is None or not request.scope.allows(found.queue):
            raise HttpError(404, "no_such_callback", "there is no delivery of this id; GET /api/v1/callbacks lists them")
        return found
