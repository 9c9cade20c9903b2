"""`/metrics`: facts of the fleet for Prometheus, from the samples that Redis keeps."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from redis import Redis
from redis.exceptions import RedisError

from fusion.exceptions import ConfigurationError, FusionError
from fusion.kernel.scope import EVERYTHING, Scope
from fusion.metrics import catalogue
from fusion.metrics.catalogue import FLEET, METRICS, MOST_NAMES, OTHER, PRIORITIES
from fusion.metrics.figures import Figures
from fusion.metrics.process import needed
from fusion.store.access import sample_inspector_of
from fusion.store.client.classify import one_line
from fusion.store.layout.names import is_pattern, is_reserved
from fusion.store.read.sample_inspector import FleetSample, QueueSample
from fusion.views.worker import state_of
from fusion.web.exchange import HttpError, Request, Response
from fusion.web.routing import Route

if TYPE_CHECKING:
    from fusion.web.rq_metrics import RqNames

#: Seconds for which one read serves all who ask.
KEPT = 5.0
#: States that are shown even if no worker has them, so that no series comes and goes with its last worker.
_STATES = ("idle", "busy", "suspended", "quiet", "throttled", "dead")
#: Metrics that a token which is restricted to some queues may see: those by queue, of its own queues.
_OF_QUEUES = frozenset(one for one in METRICS if one.source == FLEET and "queue" in one.labels)


class FleetPage:
    """The page of the fleet. All who ask within five seconds share one read of Redis. Safe to use from several threads."""

    def __init__(self, connection: Redis, *, compat_rq: bool = False) -> None:
        self._connection, self._lock = connection, threading.Lock()
        self._sample: FleetSample | None = None
        self._read_at, self._until = 0.0, 0.0
        self._body = b""
        self._rq: RqNames | None = None
        if compat_rq:
            needed()
            from fusion.web.rq_metrics import RqNames

            self._rq = RqNames()

    def write(self, scope: Scope = EVERYTHING) -> bytes:
        """Return the page of what this scope may see. If Redis does not answer, it says that and nothing else.

        ConfigurationError if prometheus-client is missing."""
        page = needed()
        with self._lock:
            if time.monotonic() >= self._until:
                self._read()
            sample, age, body = self._sample, time.monotonic() - self._read_at, self._body
        now = Figures()
        now.put(catalogue.REDIS_UP, sample is not None)
        if sample is not None:
            now.put(catalogue.SAMPLE_AGE, sample.age + age)
            if not scope.all:
                body = page.page(_of_queues(sample, scope))
        first: bytes = page.page(now)
        return first + body

    def _read(self) -> None:
        page = needed()
        try:
            sample: FleetSample | None = sample_inspector_of(self._connection).fleet()
        except (RedisError, FusionError, OSError):
            sample = None
        self._read_at = time.monotonic()
        self._until = self._read_at + KEPT
        self._sample = sample
        if sample is None:
            self._body = b""
            return
        figures = _of_queues(sample, EVERYTHING)
        _put_fleet(figures, sample)
        self._body = page.page(figures)
        if self._rq:
            self._body += page.written(self._rq.families(sample))


def _of_queues(sample: FleetSample, scope: Scope) -> Figures:
    """Return what is shown of the queues that a scope allows: the first 500 by name, and the rest together."""
    figures = Figures()
    shown = [one for one in sample.queues if scope.allows(one.name)]
    served = _served([one.name for one in shown], sample)
    for nth, one in enumerate(shown):
        _put_queue(figures, one, one.name if nth < MOST_NAMES else OTHER, served[one.name])
    return figures


def _put_queue(figures: Figures, one: QueueSample, label: str, workers: int) -> None:
    for of, priority in enumerate(PRIORITIES):
        figures.put(catalogue.WAITING, one.depths[of], label, priority)
        figures.put(catalogue.OLDEST, one.ages[of], label, priority)
    for status, count in one.counts.items():
        figures.put(catalogue.JOBS, count, label, status)
    figures.put(catalogue.PAUSED, one.paused, label)
    figures.put(catalogue.QUEUE_WORKERS, workers, label)
    if one.flow:
        figures.put(catalogue.CAME, one.flow.came / 60, label)
        figures.put(catalogue.WENT, one.flow.went / 60, label)
        figures.put(catalogue.FAILED_RATE, one.flow.failed / 60, label)


def _served(names: Iterable[str], sample: FleetSample) -> Counter[str]:
    """Return how many live workers serve each queue."""
    names = list(names)
    lists = Counter(one.queues for one in sample.workers if one.alive and not one.is_courier)
    found: Counter[str] = Counter()
    for queues, count in lists.items():
        patterns = [one for one in queues if is_pattern(one)]
        exact = {one for one in queues if not is_pattern(one)}
        for name in names:
            if name in exact or (not is_reserved(name) and any(fnmatchcase(name, one) for one in patterns)):
                found[name] += count
    return found


def _put_fleet(figures: Figures, sample: FleetSample) -> None:
    states = Counter(state_of(one) for one in sample.workers if not one.is_courier)
    for state in {*_STATES, *states}:
        figures.put(catalogue.WORKERS, states[state], state)
    info = sample.info
    for metric, value in (
        (catalogue.READ_SECONDS, sample.seconds),
        (catalogue.FAILED, sample.failed),
        (catalogue.SCHEDULED, sample.scheduled),
        (catalogue.SUSPENDED, sample.suspended),
        (catalogue.SCHEDULERS, sample.schedulers),
        (catalogue.DUE_LATENESS, sample.due_late),
        (catalogue.CRON_LATENESS, sample.cron_late),
        (catalogue.RELAYS, sample.relays),
        (catalogue.CALLBACKS, sample.callbacks),
        (catalogue.REDIS_MEMORY, info.get("used_memory", 0)),
        (catalogue.REDIS_LIMIT, info.get("maxmemory", 0)),
        (catalogue.REDIS_CLIENTS, info.get("connected_clients", 0)),
        (catalogue.REDIS_CPU, info.get("used_cpu_sys", 0) + info.get("used_cpu_user", 0)),
        (catalogue.REDIS_EVICTED, info.get("evicted_keys", 0)),
    ):
        figures.put(metric, value)
    for sink in sample.sinks:
        figures.put(catalogue.BEHIND, sink.behind, sink.name)
        figures.put(catalogue.BEHIND_AGE, sink.oldest if sink.behind else 0, sink.name)
        figures.put(catalogue.FAILING, sink.failing_since is not None, sink.name)
        figures.put(catalogue.PARKED, sink.parked, sink.name)


class Metrics:
    """The route of the page."""

    def __init__(self, page: FleetPage) -> None:
        self._page = page

    def routes(self) -> list[Route]:
        """Return the route."""
        return [Route("GET", "/metrics", self.metrics, "read", "metrics", by_queue=True)]

    def metrics(self, request: Request) -> Response:
        """Show metrics of the fleet to Prometheus: those of its queues only to a token that is restricted to some."""
        try:
            body = self._page.write(request.scope)
        except ConfigurationError as error:
            raise HttpError(501, "not_installed", one_line(error)) from None
        kind = needed().CONTENT_TYPE
        return Response(200, b"" if request.method == "HEAD" else body, {"Content-Type": kind})
