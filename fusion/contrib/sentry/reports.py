"""Sentry in the job's process: a client whose envelopes go to the worker."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import sentry_sdk
from sentry_sdk.integrations.logging import ignore_logger
from sentry_sdk.scope import Scope, use_isolation_scope
from sentry_sdk.tracing import TransactionSource
from sentry_sdk.transport import Transport
from sentry_sdk.utils import event_from_exception

from fusion.context import get_current_job
from fusion.contrib.sentry.facts import (
    attempt_of,
    check_in,
    context_of,
    entry_of,
    fingerprint_of,
    masked_crumb,
    masked_event,
    tags_of,
)
from fusion.exceptions import ConfigurationError, DeserializationError
from fusion.execution.outcome import exc_classes, failed
from fusion.kernel.compression import plain

if TYPE_CHECKING:
    from sentry_sdk.envelope import Envelope

    from fusion.context import CurrentJob

#: The key of a job's meta, the one that Sentry's integration for RQ uses; and the collector's name, among those that a worker sends to.
META, COLLECTOR = "_sentry_trace_headers", "sentry"
_RATE = "SENTRY_TRACES_SAMPLE_RATE"


class ToWorker(Transport):
    """Gives envelopes to the job that runs here; those of no job are dropped."""

    def capture_envelope(self, envelope: Envelope) -> None:
        """Take an envelope. It never waits."""
        job = get_current_job()
        if job is not None and job.telemetry is not None:
            job.telemetry.add(COLLECTOR, envelope.serialize())


class Reports:
    """Reports the runs in this process."""

    def __init__(self) -> None:
        #: The scope of each run that has not ended, or whose error may be reported.
        self._scopes: WeakKeyDictionary[CurrentJob, tuple[Scope, dict[str, Any]]] = WeakKeyDictionary()

    def prepare(self) -> None:
        """Set Sentry up, unless that is done."""
        if sentry_sdk.get_client().is_active():
            return
        options: dict[str, Any] = {
            "transport": ToWorker,
            "traces_sample_rate": sample_rate(),
            "before_send": masked_event,
            "before_send_transaction": masked_event,
            "before_breadcrumb": masked_crumb,
            # Local variables and lines of source hold what the masking of messages hides.
            "include_local_variables": False,
            "include_source_context": False,
            "max_request_body_size": "never",
            # No thread, as a fork would lose it.
            "auto_session_tracking": False,
            "enable_backpressure_handling": False,
            "send_client_reports": False,
            "shutdown_timeout": 0,
        }
        sentry_sdk.init(**options)
        ignore_logger("fusion.middleware")

    @contextmanager
    def run(self, job: CurrentJob) -> Iterator[None]:
        """Trace a run, with its own scope."""
        client = sentry_sdk.get_client()
        if not client.is_active():
            yield
            return
        entry, began, status = entry_of(job.id), monotonic(), "error"
        if entry is not None:
            sentry_sdk.capture_event(check_in(entry, job.execution_id, "in_progress", None, client.options))  # type: ignore[arg-type]
            if job.telemetry is not None:
                job.telemetry.flush()
        with sentry_sdk.isolation_scope() as scope:
            scope.clear_breadcrumbs()
            for name, value in tags_of(job.fields, job.origin, job.func_name).items():
                scope.set_tag(name, value)
            scope.set_context("fusion", context_of(job.fields, job.id, job.origin, job.func_name))
            transaction = sentry_sdk.continue_trace(
                headers_of(job.fields),
                op="queue.process",
                name=job.func_name,
                source=TransactionSource.TASK,
                origin="auto.queue.fusion",
            )
            with sentry_sdk.start_transaction(transaction) as span:
                for name, value in messaging(job).items():
                    span.set_data(name, value)
                self._scopes[job] = scope, dict(span.get_trace_context())
                try:
                    yield
                except BaseException:
                    span.set_status("internal_error")
                    raise
                else:
                    status = "ok"
                    span.set_status("ok")
                    self._scopes.pop(job, None)
                finally:
                    if entry is not None:
                        done = check_in(entry, job.execution_id, status, monotonic() - began, client.options)
                        sentry_sdk.capture_event(done)  # type: ignore[arg-type]

    def failed(self, job: CurrentJob, error: BaseException) -> None:
        """Report the error of a job that has failed for good, with what its run has left in its scope."""
        client = sentry_sdk.get_client()
        if not client.is_active():
            return
        scope, trace = self._scopes.pop(job, (None, {}))
        if scope is None:
            scope = Scope()
        fields = failed(error, error.__traceback__)
        named = fields.get(b"exc_classes", exc_classes(error)).decode("utf-8", "replace").partition("\n")[0]
        frame = fields.get(b"error_frame", b"").decode("utf-8", "replace")
        event, hint = event_from_exception(error, client_options=client.options, mechanism={"type": "fusion", "handled": False})
        event["fingerprint"] = fingerprint_of(named, frame, job.func_name)
        event["transaction"] = job.func_name
        if trace:
            event.setdefault("contexts", {})["trace"] = trace
        with use_isolation_scope(scope):
            sentry_sdk.capture_event(event, hint=hint)


def headers_of(fields: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return the headers of the trace that a job was enqueued in; empty without one."""
    try:
        found = json.loads(plain(fields.get(b"meta") or b"{}")).get(META)
    except (ValueError, AttributeError, RecursionError, DeserializationError):  # another program's meta
        return {}
    return {str(name): value for name, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}


def messaging(job: CurrentJob) -> dict[str, Any]:
    """Return what Sentry's page of queues is made of."""
    found: dict[str, Any] = {
        "messaging.system": "fusion",
        "messaging.message.id": job.id,
        "messaging.destination.name": job.origin,
        "messaging.message.retry.count": attempt_of(job.fields) - 1,
        "messaging.message.body.size": len(job.fields.get(b"data", b"")),
    }
    if (since := job.enqueued_at) is not None:
        waited = datetime.now(timezone.utc) - since
        found["messaging.message.receive.latency"] = max(0.0, waited.total_seconds() * 1000)
    return found


def sample_rate() -> float | None:
    """Return SENTRY_TRACES_SAMPLE_RATE, None if it is not set. ConfigurationError if it is no number from 0 to 1."""
    text = os.environ.get(_RATE, "").strip()
    if not text:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:
        raise ConfigurationError(f"{_RATE} is {text!r}; give a number from 0 to 1", code="FUS-222")
    return rate
