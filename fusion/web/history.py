"""The outcomes of the jobs of all queues, by minute or hour: `/api/v1/history`."""

from __future__ import annotations

from redis import Redis

from fusion.store.access import inspector_of
from fusion.store.layout.history import OTHER
from fusion.store.read.tolerant import forgiving
from fusion.views.queue import FleetStepView, HistoryView, seconds_of
from fusion.web.calls import read_since
from fusion.web.exchange import Request, Response
from fusion.web.routing import Param, Route

#: Most queues that are added up, the busiest ones. Each has a key with some thousand fields for an hour.
MOST = 50
_SINCE = (Param("since", "How far back: by minute up to 1d, else by hour up to 30d.", default="1h"),)


class History:
    """The history of all queues that the caller may see, added up."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route(
                "GET",
                "/api/v1/history",
                self.history,
                "read",
                "history",
                _SINCE,
                answer=HistoryView,
                by_queue=True,
                rows="history",
            )
        ]

    def history(self, request: Request) -> Response:
        """Show how many jobs ended in each minute or hour, and how long they had waited: of all queues together, or of the busiest ones."""
        looking, _ = forgiving(self._connection)
        inspector, since = inspector_of(looking), read_since(request.args().get("since", "1h"))
        every = inspector.history_names("queue")
        names = every if request.scope.all else request.scope.of(name for name in every if name != OTHER)
        chosen = names
        if len(names) > MOST:
            flows = dict(zip(names, inspector_of(looking).flows(names), strict=True))
            chosen = sorted(names, key=lambda name: -(flow.went if (flow := flows[name]) else 0.0))[:MOST]
        steps = inspector.history_of(chosen, since)
        past = [FleetStepView.of(one) for one in steps]
        return Response.view(HistoryView(queues=len(chosen), of=len(names), history=past, seconds=seconds_of(steps)))
