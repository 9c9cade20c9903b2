"""Names and values of spans: OpenTelemetry's conventions for messaging, and how a trace's context travels in a job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from opentelemetry import context, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from fusion.exceptions import DeserializationError
from fusion.kernel.compression import plain

#: The key of a job's meta, and in it the mark of a job whose run begins a trace of its own.
META, LINK = "otel", "link"
#: The name of Fusion's tracer.
SCOPE = "fusion"
_W3C = TraceContextTextMapPropagator()


def of_enqueue(queue: str, ids: Sequence[str]) -> dict[str, Any]:
    """Return the attributes of an enqueue."""
    one = {"messaging.message.id": ids[0]} if len(ids) == 1 else {"messaging.batch.message_count": len(ids)}
    return {**_shared("send", queue), **one}


def of_run(fields: Mapping[bytes, bytes], job_id: str, queue: str, task: str) -> dict[str, Any]:
    """Return the attributes of a run, from the fields of its job. `task`: empty if it is not known."""
    found = {
        **_shared("process", queue),
        "messaging.message.id": job_id,
        "fusion.job.attempt": _number(fields, b"attempts", 0) + 1,
    }
    found["fusion.job.priority"] = _number(fields, b"priority", 1)
    if task:
        found["code.function.name"] = task
    return found


def _shared(operation: str, queue: str) -> dict[str, Any]:
    return {
        "messaging.system": "fusion",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
    }


def carrier_of(span: trace.Span) -> dict[str, Any] | None:
    """Return a span's context as it is stored with a job; None if nothing records here, as no provider is set up."""
    carrier: dict[str, Any] = {}
    _W3C.inject(carrier, trace.set_span_in_context(span, context.Context()))
    return carrier or None


def parent_of(fields: Mapping[bytes, bytes]) -> tuple[context.Context, bool]:
    """Return the context that was stored with a job, empty without one; and whether its run begins a trace of its own."""
    try:
        meta = json.loads(plain(fields.get(b"meta") or b"{}"))
        carrier = meta.get(META)
        texts = {name: value for name, value in carrier.items() if isinstance(value, str)}
        return _W3C.extract(texts, context.Context()), bool(carrier.get(LINK))
    except (ValueError, AttributeError, RecursionError, DeserializationError):  # another program's meta
        return context.Context(), False


def ids_of(fields: Mapping[bytes, bytes], job_id: str, execution_id: str) -> tuple[int, int]:
    """Return the ids of a run's trace, should it begin one, and of its span. They follow from the run, so that its worker can still name the
    span when the process is gone. All runs of a job, in this life of its id, have one trace."""
    life = b"%b %b" % (job_id.encode(), fields.get(b"created_at", b""))
    trace_id = int.from_bytes(blake2b(life, digest_size=16, person=b"fusion-trace").digest(), "big")
    span_id = int.from_bytes(blake2b(execution_id.encode(), digest_size=8, key=life[:64], person=b"fusion-span").digest(), "big")
    return trace_id or 1, span_id or 1


def _number(fields: Mapping[bytes, bytes], key: bytes, default: int) -> int:
    raw = fields.get(key, b"")
    return int(raw) if raw.isdigit() and len(raw) < 10 else default
