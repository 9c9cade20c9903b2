"""Traces of OpenTelemetry: a span for each enqueue, and one for each run of a job. docs/tracing.md is the guide.

Name `fusion.contrib.opentelemetry.Tracing` in the setting `middleware`, for producers and workers.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from fusion.exceptions import ConfigurationError
from fusion.middleware import ProducerMiddleware, WorkerMiddleware

try:
    import opentelemetry.sdk  # noqa: F401
    from opentelemetry import trace
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "opentelemetry":
        raise
    raise ConfigurationError(
        "tracing needs opentelemetry-sdk; install it with: pip install 'fusion-queue[opentelemetry]'", code="FUS-214"
    ) from None

from fusion.contrib.opentelemetry import conventions
from fusion.contrib.opentelemetry.runs import Runs

if TYPE_CHECKING:
    from fusion.context import CurrentJob
    from fusion.job import Job
    from fusion.middleware import Enqueueing


class Tracing(ProducerMiddleware, WorkerMiddleware):
    """Traces what is enqueued, by the application's own provider, and what runs, by one of Fusion's. The span of a run is a child of that of
    its enqueue; for jobs that were enqueued in one call, it begins a trace of its own, and has a link to it."""

    #: Whether each run begins a trace of its own.
    links = False

    def __init__(self) -> None:
        self._sending: WeakKeyDictionary[Enqueueing, trace.Span] = WeakKeyDictionary()
        self._runs = Runs(links=self.links)

    def before_enqueue(self, enqueueing: Enqueueing) -> None:
        """Begin the span of the call, and write its context into the jobs' meta."""
        jobs = enqueueing.jobs
        if not jobs:
            return
        span = trace.get_tracer(conventions.SCOPE).start_span(
            f"send {enqueueing.queue}",
            kind=trace.SpanKind.PRODUCER,
            attributes=conventions.of_enqueue(enqueueing.queue, [job.id for job in jobs]),
        )
        if (carrier := conventions.carrier_of(span)) is None:
            return
        if len(jobs) > 1:
            carrier[conventions.LINK] = True
        for job in jobs:
            job.meta[conventions.META] = carrier
        self._sending[enqueueing] = span

    def after_enqueue(self, enqueueing: Enqueueing, jobs: Sequence[Job]) -> None:
        """End it."""
        if (span := self._sending.pop(enqueueing, None)) is not None:
            span.end()

    def prepare(self) -> None:
        """Make the provider of this worker's jobs."""
        self._runs.prepare()

    def around_job(self, job: CurrentJob) -> Generator[None, Any, None]:
        """Trace the run."""
        with self._runs.traced(job):
            yield


class LinkedTracing(Tracing):
    """Traces with each run in a trace of its own. A link leads to the enqueue."""

    links = True
