"""The JSON API: `/api/v1`, `/retryTask/` and the probes. Each noun has a module of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from redis import Redis

from fusion.store.access import broker_of, inspector_of
from fusion.views.fleet import HealthView, ReadinessView
from fusion.web.audit import Audit, recorded
from fusion.web.batches import Batches
from fusion.web.callbacks import Callbacks
from fusion.web.cron import CronEntries
from fusion.web.enqueue import Enqueue
from fusion.web.exchange import HttpError, Request, Response
from fusion.web.failures import Failures
from fusion.web.fleet import Fleet, KeptVerdict, RedisServer
from fusion.web.functions import Functions
from fusion.web.jobs import Jobs, OneJob, Reschedule
from fusion.web.keys import ConcurrencyKeys
from fusion.web.metrics import FleetPage, Metrics
from fusion.web.openapi.document import OpenApi
from fusion.web.operations import Operations
from fusion.web.queues import FleetHistory, Queues
from fusion.web.routing import Route
from fusion.web.trash import TrashRoutes
from fusion.web.workers import Workers


class Api:
    """The routes of the API. `tasks`: modules whose functions callers may name. `stopping()`: True if the process is about to end."""

    def __init__(
        self,
        connection: Redis,
        tasks: Sequence[str],
        stopping: Callable[[], bool] = lambda: False,
        *,
        compat: str | None = None,
    ) -> None:
        """`compat`: further names of `/metrics`, see the setting `metrics_compat`."""
        self._connection, self._tasks, self._stopping, self._compat = connection, tuple(tasks), stopping, compat
        self._verdict = KeptVerdict(connection)

    def routes(self) -> list[Route]:
        """Return all routes. The first path that matches is used, so a fixed path stands before one with a name in braces."""
        connection = self._connection
        routes = [
            *self.probes(),
            *Audit(connection).routes(),
            *TrashRoutes(connection).routes(),
            *Enqueue(connection, self._tasks).routes(),
            *Jobs(connection).routes(),
            *OneJob(connection, self._tasks).routes(),
            *Reschedule(connection).routes(),
            *Queues(connection).routes(),
            *FleetHistory(connection).routes(),
            *Functions(connection).routes(),
            *ConcurrencyKeys(connection).routes(),
            *Batches(connection).routes(),
            *Failures(connection).routes(),
            *Fleet(connection).routes(),
            *RedisServer(connection).routes(),
            *Workers(connection).routes(),
            *CronEntries(connection).routes(),
            *Callbacks(connection).routes(),
            *Operations(connection).routes(),
        ]
        return recorded(OpenApi(routes).routes(), connection)

    def probes(self) -> list[Route]:
        """Return the routes that need no token."""
        return [
            Route("GET", "/healthz", self.health, None, "health", answer=HealthView),
            Route("GET", "/readyz", self.ready, None, "ready", answer=ReadinessView),
        ]

    def metrics(self) -> list[Route]:
        """Return the route for Prometheus. It is no part of the API: its answer is not JSON."""
        return Metrics(FleetPage(self._connection, compat_rq=self._compat == "rq")).routes()

    def health(self, request: Request) -> Response:
        """Answer 200 if this process is alive and its Redis answers."""
        inspector_of(self._connection).now()
        return Response.view(HealthView(status="ok"))

    def ready(self, request: Request) -> Response:
        """Answer 200 if ready for requests: Redis answers, and this process is neither about to end nor too old for the data; else 503.
        The verdict on the fleet comes as one word and does not matter here: an unhealthy fleet needs requests just as well."""
        if self._stopping():
            raise HttpError(503, "stopping", "this process is about to end; ask another")
        broker_of(self._connection).check_writer()
        inspector_of(self._connection).now()
        return Response.view(ReadinessView(status="ok", verdict=self._verdict.word()))
