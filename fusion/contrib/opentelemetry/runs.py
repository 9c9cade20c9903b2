"""Spans of runs, in the job's process: a provider whose spans go to the worker."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from opentelemetry import context, trace
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.version import __version__

from fusion.context import get_current_job
from fusion.contrib.opentelemetry import conventions
from fusion.contrib.opentelemetry.encoding import encoded
from fusion.exceptions import JobInterrupted
from fusion.execution.outcome import dotted
from fusion.kernel.redaction import masked_text
from fusion.retry import RateLimited

if TYPE_CHECKING:
    from fusion.context import CurrentJob
    from fusion.execution.telemetry import JobTelemetry

#: The collector's name, among those that a worker sends to.
OTLP = "otlp"
#: Most characters of an error's message.
_MESSAGE = 1024
#: Ids of the next trace and span.
_next: ContextVar[tuple[int, int] | None] = ContextVar("fusion_otel_ids", default=None)


class _Ids(IdGenerator):
    """Ids of runs follow from the run; all others are the system's random numbers, as forked processes may share the state of a generator."""

    def generate_span_id(self) -> int:
        """Return the id of a span."""
        given = _next.get()
        return int.from_bytes(os.urandom(8), "big") or 1 if given is None else given[1]

    def generate_trace_id(self) -> int:
        """Return the id of a trace."""
        given = _next.get()
        return int.from_bytes(os.urandom(16), "big") or 1 if given is None else given[0]


class Provider(TracerProvider):
    """A provider for processes that are forked for each job. Reads the sampler and the limits of spans from OpenTelemetry's variables."""

    def __init__(self, processor: SpanProcessor) -> None:
        super().__init__(resource=resource(), shutdown_on_exit=False, id_generator=_Ids())
        self.add_span_processor(processor)

    def _handle_fork(self) -> None:
        """Renew the lock. OpenTelemetry would start threads here, in each job's process, to look for a resource."""
        self._tracers_lock = threading.Lock()


def resource() -> Resource:
    """Return what the spans are of: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, without other detectors. Service: `fusion` by default."""
    sdk = {"telemetry.sdk.language": "python", "telemetry.sdk.name": "opentelemetry", "telemetry.sdk.version": __version__}
    return Resource({"service.name": "fusion", **sdk}).merge(OTELResourceDetector().detect())


def run_span(
    provider: trace.TracerProvider,
    fields: Mapping[bytes, bytes],
    job_id: str,
    execution_id: str,
    *,
    queue: str,
    task: str,
    linked: bool,
    start: int | None = None,
) -> trace.Span:
    """Begin the span of a run. `start`: nanoseconds since 1970; None for now."""
    parent, alone = conventions.parent_of(fields)
    links = []
    if linked or alone:
        if (remote := trace.get_current_span(parent).get_span_context()).is_valid:
            links.append(trace.Link(remote))
        parent = context.Context()
    token = _next.set(conventions.ids_of(fields, job_id, execution_id))
    try:
        return provider.get_tracer(conventions.SCOPE).start_span(
            f"process {queue}",
            context=parent,
            kind=trace.SpanKind.CONSUMER,
            attributes=conventions.of_run(fields, job_id, queue, task),
            links=links,
            start_time=start,
            record_exception=False,
        )
    finally:
        _next.reset(token)


class Runs(SpanProcessor):
    """Traces the runs in this process. What ends here goes to the worker with a job that runs; after the last job's end it is dropped."""

    def __init__(self, *, links: bool) -> None:
        self._links = links
        #: Of Fusion; None where no worker has prepared it, as in a test without one.
        self._provider: Provider | None = None
        #: The runs, by their trace.
        self._running: dict[int, JobTelemetry] = {}

    def prepare(self) -> None:
        """Make the provider. The first run makes it the process's own, unless a task module has set up another one: one that starts a thread
        is imported by the first job that needs it, and OpenTelemetry refuses a second provider."""
        self._provider = Provider(self)
        self._provider.get_tracer(conventions.SCOPE)

    @contextmanager
    def traced(self, job: CurrentJob) -> Iterator[None]:
        """Trace a run."""
        if self._provider is not None and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            trace.set_tracer_provider(self._provider)
        span = run_span(
            self._provider or trace.get_tracer_provider(),
            job.fields,
            job.id,
            job.execution_id,
            queue=job.origin,
            task=job.func_name,
            linked=self._links,
        )
        trace_id = span.get_span_context().trace_id
        if job.telemetry is not None:
            self._running[trace_id] = job.telemetry
        # A job that shares its call is not the current one: spans of the call are not of one job.
        token = context.attach(trace.set_span_in_context(span)) if get_current_job() is job else None
        try:
            yield
        except BaseException as error:
            note_error(
                span,
                dotted(type(error)).removeprefix("builtins."),
                error,
                expected=isinstance(error, (RateLimited, JobInterrupted)),
            )
            raise
        finally:
            if token is not None:
                context.detach(token)
            span.end()
            if self._running.get(trace_id) is job.telemetry:
                self._running.pop(trace_id, None)

    def on_end(self, span: ReadableSpan) -> None:
        """Give a span that ended to the job that runs here."""
        own = span.get_span_context()
        if own is None or not own.trace_flags.sampled:
            return
        job = get_current_job()
        telemetry = self._running.get(own.trace_id) if job is None else job.telemetry
        for taker in [telemetry] if telemetry is not None else list(self._running.values())[:1]:
            taker.add(OTLP, encoded(span), own=span.kind is trace.SpanKind.CONSUMER)


def note_error(span: trace.Span, kind: str, message: object, *, expected: bool = False) -> None:
    """Write into a span what a run raised. `expected`: it only gave way."""
    if not span.is_recording():
        return
    span.set_attribute("error.type", kind)
    if not expected:
        shown = masked_text(message, _MESSAGE)
        span.add_event("exception", {"exception.type": kind, "exception.message": shown})
        span.set_status(trace.Status(trace.StatusCode.ERROR, f"{kind}: {shown}"))
