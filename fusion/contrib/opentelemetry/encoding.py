"""Spans as OTLP's JSON. What a task raised is masked: its message may hold what nobody is to see."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan

from fusion.kernel.redaction import masked_text

#: Most characters of a message, and of a line of a traceback; most lines, from the last one back.
_MESSAGE, _LINE, _LINES = 1024, 300, 60
#: OTLP's codes. Those of kinds are one more than OpenTelemetry's own.
_STATUS = {trace.StatusCode.UNSET: 0, trace.StatusCode.OK: 1, trace.StatusCode.ERROR: 2}
_SAMPLED_REMOTE, _LOCAL = 0x300, 0x100


def encoded(span: ReadableSpan) -> bytes:
    """Return a span as an element of `scopeSpans`."""
    own, parent, scope = span.get_span_context(), span.parent, span.instrumentation_scope
    assert own is not None
    found: dict[str, Any] = {
        "traceId": f"{own.trace_id:032x}",
        "spanId": f"{own.span_id:016x}",
        "name": span.name,
        "kind": span.kind.value + 1,
        "startTimeUnixNano": str(span.start_time or 0),
        "endTimeUnixNano": str(span.end_time or 0),
        "attributes": attributes(span.attributes),
        "flags": (_LOCAL if parent is None or not parent.is_remote else _SAMPLED_REMOTE) | own.trace_flags,
    }
    if own.trace_state:
        found["traceState"] = own.trace_state.to_header()
    if parent is not None:
        found["parentSpanId"] = f"{parent.span_id:016x}"
    if span.events:
        found["events"] = [
            {"timeUnixNano": str(event.timestamp), "name": event.name, "attributes": attributes(event.attributes)}
            for event in span.events
        ]
    if span.links:
        found["links"] = [
            {
                "traceId": f"{link.context.trace_id:032x}",
                "spanId": f"{link.context.span_id:016x}",
                "attributes": attributes(link.attributes),
                "flags": _SAMPLED_REMOTE | link.context.trace_flags,
            }
            for link in span.links
        ]
    for name, count in (("Attributes", span.dropped_attributes), ("Events", span.dropped_events), ("Links", span.dropped_links)):
        if count:
            found[f"dropped{name}Count"] = count
    if span.status.status_code is not trace.StatusCode.UNSET:
        found["status"] = {"code": _STATUS[span.status.status_code]}
        if span.status.description:
            found["status"]["message"] = masked_text(span.status.description, _MESSAGE)
    named = {} if scope is None else {"name": scope.name, **({"version": scope.version} if scope.version else {})}
    return json.dumps({"scope": named, "spans": [found]}, separators=(",", ":"), allow_nan=False).encode()


def attributes(values: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return attributes as OTLP has them."""
    return [{"key": key, "value": _value(_shown(key, value))} for key, value in (values or {}).items()]


def _shown(key: str, value: Any) -> Any:
    if key == "exception.message":
        return masked_text(value, _MESSAGE)
    if key == "exception.stacktrace":
        lines = str(value).splitlines()[-_LINES:]
        return "\n".join(masked_text(line, _LINE, source=line.startswith("    ")) for line in lines)
    return value


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float) and isfinite(value):
        return {"doubleValue": value}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return {"arrayValue": {"values": [_value(one) for one in value]}}
    return {"stringValue": str(value)}
