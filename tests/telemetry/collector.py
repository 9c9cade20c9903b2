"""A collector that receives OTLP/HTTP, as a server on a real socket."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Span:
    """A span as it arrived."""

    name: str
    trace: str
    id: str
    parent: str
    kind: int
    attributes: dict[str, Any]
    scope: str
    error: str
    links: list[tuple[str, str]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)


class Collector:
    """Keeps the bodies that it receives. `answers`: status codes for the next requests; 200 for all others.
    `after`: seconds after which it takes a body."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.answers: list[int] = []
        self.after = 0.0
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                time.sleep(collector.after)
                code = collector.answers.pop(0) if collector.answers else 200
                if code == 200:
                    collector.bodies.append(body)
                    collector.headers.append(dict(self.headers))
                    collector.paths.append(self.path)
                self.send_response(code)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def spans(self) -> list[Span]:
        return [span for body in list(self.bodies) for span in _spans(json.loads(body))]

    def services(self) -> set[str]:
        found = set()
        for body in self.bodies:
            for of in json.loads(body)["resourceSpans"]:
                found.add(_plain(of["resource"]["attributes"])["service.name"])
        return found


def _spans(body: dict[str, Any]) -> Iterator[Span]:
    for of in body["resourceSpans"]:
        for scope in of["scopeSpans"]:
            for raw in scope["spans"]:
                assert int(raw["endTimeUnixNano"]) >= int(raw["startTimeUnixNano"]) > 0
                assert len(raw["traceId"]) == 32 and len(raw["spanId"]) == 16
                status = raw.get("status", {})
                yield Span(
                    raw["name"],
                    raw["traceId"],
                    raw["spanId"],
                    raw.get("parentSpanId", ""),
                    raw["kind"],
                    _plain(raw["attributes"]),
                    scope["scope"]["name"],
                    status.get("message", "") if status.get("code") == 2 else "",
                    [(link["traceId"], link["spanId"]) for link in raw.get("links", [])],
                    [{"name": event["name"], **_plain(event["attributes"])} for event in raw.get("events", [])],
                )


def _plain(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in attributes}
