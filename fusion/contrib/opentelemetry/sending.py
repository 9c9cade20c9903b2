"""The worker's side: sends spans of jobs by OTLP/HTTP, and makes those of runs whose process was killed."""

from __future__ import annotations

import json
import os
import ssl
import time
from collections.abc import Sequence
from typing import Any
from urllib.error import HTTPError
from urllib.parse import unquote
from urllib.request import HTTPRedirectHandler, Request, build_opener
from urllib.request import HTTPSHandler as _HTTPSHandler

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from fusion.contrib.opentelemetry.encoding import attributes, encoded
from fusion.contrib.opentelemetry.runs import Provider, note_error, resource, run_span
from fusion.exceptions import ConfigurationError
from fusion.worker.telemetry import DeadRun, NotNow

#: Where a collector listens if nothing else is said.
_ENDPOINT = "http://localhost:4318"
_TIMEOUT = 10.0
#: Answers after which the same spans are sent again, as OTLP has it.
_AGAIN = (429, 502, 503, 504)


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        """Follow none: the headers may hold a key."""
        return


class Sender:
    """Sends to the endpoint of OpenTelemetry's variables. ConfigurationError if they can't be used."""

    def __init__(self, *, links: bool) -> None:
        self._links = links
        self._url = _said("ENDPOINT", of_traces=True) or f"{(_said('ENDPOINT') or _ENDPOINT).rstrip('/')}/v1/traces"
        if not self._url.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"OTEL_EXPORTER_OTLP_ENDPOINT is {self._url!r}; give a URL that begins with http:// or https://", code="FUS-222"
            )
        protocol = _said("PROTOCOL", of_traces=True) or _said("PROTOCOL")
        if protocol.startswith("grpc"):
            raise ConfigurationError(
                f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; a worker sends spans by http/json: name a collector's HTTP port, mostly 4318",
                code="FUS-222",
            )
        self.shown = f"OTLP collector at {self._url.partition('?')[0]}"
        self._headers = {"Content-Type": "application/json", **_headers(_said("HEADERS", of_traces=True) or _said("HEADERS"))}
        self._timeout = _seconds(_said("TIMEOUT", of_traces=True) or _said("TIMEOUT"))
        self._opener = build_opener(_NoRedirect, *_tls(self._url, _said("CERTIFICATE", of_traces=True) or _said("CERTIFICATE")))
        self._ended: list[bytes] = []
        self._provider = Provider(_Keep(self._ended))
        of = {"attributes": attributes(resource().attributes)}
        self._head = b'{"resourceSpans":[{"resource":%b,"scopeSpans":[' % json.dumps(of, separators=(",", ":")).encode()

    def send(self, records: Sequence[bytes]) -> int:
        """Send spans; return how many were no spans. NotNow if they may be sent again, OSError or ValueError if they may not."""
        whole = [record for record in records if _is_object(record)]
        if not whole:
            return len(records)
        body = self._head + b",".join(whole) + b"]}]}"
        try:
            with self._opener.open(Request(self._url, body, self._headers), timeout=self._timeout) as answer:
                answer.read(65536)
        except HTTPError as error:
            error.close()
            if error.code in _AGAIN:
                raise NotNow(f"it answered {error.code}", _seconds(error.headers.get("Retry-After", ""), 0.0)) from None
            raise ValueError(f"it answered {error.code}") from None
        except OSError as error:
            raise NotNow(str(getattr(error, "reason", error)) or type(error).__name__) from None
        return len(records) - len(whole)

    def dead(self, run: DeadRun) -> list[bytes]:
        """Return the span of a run whose process is gone; empty if it is not sampled."""
        now = time.time_ns()
        span = run_span(
            self._provider,
            run.fields,
            run.job_id,
            run.execution_id,
            queue=run.queue,
            task=run.task,
            linked=self._links,
            start=now - int(run.seconds * 1e9),
        )
        if run.kind:
            note_error(span, run.kind, run.why)
        span.end(now)
        found, self._ended[:] = list(self._ended), []
        return found


class _Keep(SpanProcessor):
    def __init__(self, ended: list[bytes]) -> None:
        self._ended = ended

    def on_end(self, span: ReadableSpan) -> None:
        """Keep it, if it is sampled."""
        own = span.get_span_context()
        if own is not None and own.trace_flags.sampled:
            self._ended.append(encoded(span))


def _said(name: str, *, of_traces: bool = False) -> str:
    return os.environ.get(f"OTEL_EXPORTER_OTLP_{'TRACES_' if of_traces else ''}{name}", "").strip()


def _headers(text: str) -> dict[str, str]:
    found = {}
    for pair in text.split(","):
        name, is_pair, value = pair.partition("=")
        if is_pair and name.strip():
            found[unquote(name).strip()] = unquote(value).strip()
    return found


def _seconds(text: str, default: float = _TIMEOUT) -> float:
    try:
        return min(float(text), 60.0) if float(text) > 0 else default
    except ValueError:
        return default


def _tls(url: str, certificate: str) -> list[_HTTPSHandler]:
    if not url.startswith("https:"):
        return []
    try:
        return [_HTTPSHandler(context=ssl.create_default_context(cafile=certificate or None))]
    except OSError as error:
        raise ConfigurationError(
            f"OTEL_EXPORTER_OTLP_CERTIFICATE is {certificate!r}, which can't be read: {error}", code="FUS-222"
        ) from None


def _is_object(record: bytes) -> bool:
    try:
        return isinstance(json.loads(record), dict)
    except (ValueError, RecursionError):
        return False
