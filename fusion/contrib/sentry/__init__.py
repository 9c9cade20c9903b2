"""Sentry: errors of jobs that have failed for good, traces of enqueues and runs, check-ins of cron entries. docs/sentry.md is the guide.

Name `fusion.contrib.sentry.Sentry` in the setting `middleware`, for producers and workers.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from fusion.exceptions import ConfigurationError
from fusion.middleware import ProducerMiddleware, WorkerMiddleware

try:
    import sentry_sdk
except ModuleNotFoundError as error:
    if error.name != "sentry_sdk":
        raise
    raise ConfigurationError(
        "Sentry needs sentry-sdk; install it with: pip install 'fusion-queue[sentry]'", code="FUS-214"
    ) from None

from fusion.contrib.sentry.reports import META, Reports

if TYPE_CHECKING:
    from sentry_sdk.tracing import Span

    from fusion.context import CurrentJob
    from fusion.job import Job
    from fusion.middleware import Enqueueing


class Sentry(ProducerMiddleware, WorkerMiddleware):
    """Reports what runs, through the worker; and continues the traces of what is enqueued, by the application's own Sentry."""

    def __init__(self) -> None:
        self._sending: WeakKeyDictionary[Enqueueing, Span] = WeakKeyDictionary()
        self._reports = Reports()

    def before_enqueue(self, enqueueing: Enqueueing) -> None:
        """Begin the span of the call, and write its context into the jobs' meta."""
        if not sentry_sdk.get_client().is_active() or not enqueueing.jobs:
            return
        scope = sentry_sdk.get_current_scope()
        outer = scope.span
        if outer is not None:
            span = outer.start_child(op="queue.publish", name=enqueueing.queue, origin="auto.queue.fusion")
            span.set_data("messaging.system", "fusion")
            span.set_data("messaging.destination.name", enqueueing.queue)
            if len(enqueueing.jobs) == 1:
                span.set_data("messaging.message.id", enqueueing.jobs[0].id)
            else:
                span.set_data("messaging.batch.message_count", len(enqueueing.jobs))
            self._sending[enqueueing] = span
            headers = dict(span.iter_headers())
        else:
            headers = dict(scope.iter_trace_propagation_headers())
        for job in enqueueing.jobs:
            job.meta[META] = headers

    def after_enqueue(self, enqueueing: Enqueueing, jobs: Sequence[Job]) -> None:
        """End it."""
        if (span := self._sending.pop(enqueueing, None)) is not None:
            span.finish()

    def prepare(self) -> None:
        """Set Sentry up for this worker's jobs, unless a task module has done that."""
        self._reports.prepare()

    def around_job(self, job: CurrentJob) -> Generator[None, Any, None]:
        """Trace the run, and check in if it is of a cron entry."""
        with self._reports.run(job):
            yield

    def on_failure(self, job: CurrentJob, error: BaseException) -> None:
        """Report the error."""
        self._reports.failed(job, error)
