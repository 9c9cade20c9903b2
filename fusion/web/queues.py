"""Queues over HTTP: `/api/v1/queues`."""

from __future__ import annotations

from redis import Redis

from fusion.store.access import broker_of, inspector_of
from fusion.store.layout.history import OTHER
from fusion.store.read.tolerant import forgiving
from fusion.trash import Trash
from fusion.views.base import ABSENT
from fusion.views.queue import (
    EmptiedView,
    FleetStepView,
    HistoryView,
    KeylessView,
    PauseView,
    QueueListedView,
    QueueNowView,
    QueueStatsView,
    QueuesView,
    QueueView,
    ResumedView,
    flow_of,
    history_of,
    seconds_of,
)
from fusion.web.calls import PAUSE, PURGE, read_pause, read_since
from fusion.web.exchange import HttpError, Request, Response, flag, whole
from fusion.web.routing import Param, Route, change, paging
from fusion.web.within import check_sound, told

NO_SUCH_QUEUE = "no job was ever enqueued to a queue of this name; GET /api/v1/queues lists them"
#: Queues of one page: the default and the most.
_PAGE, _LARGEST_PAGE = 100, 1000
#: Seconds that one request may spend on emptying a queue.
_EMPTYING = 10.0
#: Seconds of history that one queue is shown with, without `since`.
_LAST_HOUR = 3600.0

_PAGING = paging("Queues", _PAGE, _LARGEST_PAGE)
_DEPTHS = Param("since", "Also show how many jobs waited in each minute of this last time (`depths`): 1h, up to 1d.")
_SINCE = (Param("since", "Also show the history of this last time, and percentiles: 1h, up to 30d."),)


class Queues:
    """The routes of queues."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route(
                "GET",
                "/api/v1/queues",
                self.queues,
                "read",
                "queues",
                (*_PAGING, _DEPTHS),
                answer=QueuesView,
                by_queue=True,
                rows="queues",
            ),
            Route(
                "GET",
                "/api/v1/queues/{name}",
                self.one,
                "read",
                "queue",
                _SINCE,
                answer=QueueNowView,
                by_queue=True,
                slashes=True,
            ),
            Route(
                "GET",
                "/api/v1/queues/{name}/stats",
                self.stats,
                "read",
                "stats",
                _SINCE,
                answer=QueueStatsView,
                by_queue=True,
                slashes=True,
            ),
            change(
                "/api/v1/queues/{name}/pause",
                self.pause,
                "pause",
                body=PAUSE,
                answer=QueueView,
                by_queue=True,
                slashes=True,
            ),
            change(
                "/api/v1/queues/{name}/resume",
                self.resume,
                "unpause",
                answer=ResumedView,
                by_queue=True,
                slashes=True,
            ),
            change(
                "/api/v1/queues/{name}/empty",
                self.empty,
                "empty",
                body=PURGE,
                answer=EmptiedView,
                by_queue=True,
                slashes=True,
            ),
        ]

    def queues(self, request: Request) -> Response:
        """Show a page of queues, by name."""
        looking, broken = forgiving(self._connection)
        inspector = inspector_of(looking)
        args = request.args()
        offset, limit = whole(args, "offset", 0, 10**9), whole(args, "limit", _PAGE, _LARGEST_PAGE)
        names = request.scope.of(inspector.queue_names())
        page = names[offset : offset + limit]
        since, infos = args.get("since"), inspector.queues(page)
        depths = inspector.depths(page, min(read_since(since), 86400)) if since and page else [ABSENT] * len(page)
        queues = [
            QueueListedView.of(info, per_minute=flow_of(info.flow), depths=depth)
            for info, depth in zip(infos, depths, strict=True)
        ]
        keyless = [KeylessView.of(one) for one in inspector.keyless()] if request.scope.all else []  # not about a single queue
        broken_keys = told(request.scope, broken)
        return Response.view(QueuesView(queues=queues, total=len(names), offset=offset, keyless=keyless, broken=broken_keys))

    def one(self, request: Request) -> Response:
        """Show one queue: how deep it is, how fast it moves, and how deep and how old its jobs were in the last hour, or `since`."""
        name, since = request.params["name"], request.args().get("since")
        looking, broken = forgiving(self._connection)
        inspector = inspector_of(looking)
        if not request.scope.allows(name) or not inspector.has_queue(name):
            check_sound(request, broken)
            raise HttpError(404, "no_such_queue", NO_SUCH_QUEUE)
        (info,) = inspector.queues([name])
        steps = inspector.history("queue", name, read_since(since) if since else _LAST_HOUR)
        past = {"history": history_of(steps), "seconds": seconds_of(steps)}
        return Response.view(QueueNowView.of(info, per_minute=flow_of(info.flow), **past))

    def stats(self, request: Request) -> Response:
        """Show one queue."""
        name = request.params["name"]
        looking, broken = forgiving(self._connection)
        inspector = inspector_of(looking)
        if not request.scope.allows(name) or not inspector.has_queue(name):
            check_sound(request, broken)
            raise HttpError(404, "no_such_queue", NO_SUCH_QUEUE)
        stats = inspector.stats(name)
        since = request.args().get("since")
        steps = inspector.history("queue", name, read_since(since)) if since else None
        return Response.view(QueueStatsView.of_stats(stats, steps))

    def pause(self, request: Request) -> Response:
        """Pause a queue: none of its jobs is started, for a time or until `resume`."""
        queue, wish = self._known(request), read_pause(request.json())
        by = request.actor.name if request.actor else ""
        broker_of(self._connection).pause(queue, wish.duration, by=by, reason=wish.reason)
        (info,) = inspector_of(self._connection).queues([queue])
        return Response.view(QueueView.of(info))

    def resume(self, request: Request) -> Response:
        """Resume a queue, and show the pause that is over; null if there was none."""
        queue = self._known(request)
        was = broker_of(self._connection).unpause(queue)
        over = PauseView.of(was, inspector_of(self._connection).now()) if was else None
        return Response.view(ResumedView(name=queue, paused=False, was=over))

    def empty(self, request: Request) -> Response:
        """Delete all jobs that wait in a queue. The trash keeps them for an hour, unless `purge`. `more`: time ran out and jobs are left; send the
        request again."""
        purge = flag(request.told("purge").get("purge", False), "purge")
        queue = self._known(request)
        thrown = Trash(self._connection).empty_queue(queue, purge=purge, seconds=_EMPTYING)
        if request.entry:
            request.entry.changed(thrown.deleted)
        return Response.view(EmptiedView(name=queue, deleted=thrown.deleted, kept=thrown.kept, more=thrown.more))

    def _known(self, request: Request) -> str:
        name = request.target = request.params["name"]
        if not request.scope.allows(name) or not inspector_of(self._connection).has_queue(name):
            raise HttpError(404, "no_such_queue", NO_SUCH_QUEUE)
        return name


# -- the outcomes of the jobs of all queues, by minute or hour: `/api/v1/history`


#: Most queues that are added up, the busiest ones. Each has a key with some thousand fields for an hour.
MOST = 50
_SINCE_WHEN = (Param("since", "How far back: by minute up to 1d, else by hour up to 30d.", default="1h"),)


class FleetHistory:
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
                _SINCE_WHEN,
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
