"""An Elasticsearch for tests: strict on what is sent (Elastic's own specification), and broken in the ways that servers are, at will."""

from __future__ import annotations

import json
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.sinks.api_schema import endpoint, faults_of_answer, faults_of_request
from tests.sinks.cluster import Cluster, error, filtered

_MEDIA = re.compile(r"application/(?:vnd\.elasticsearch\+)?(json|x-ndjson)(?:; ?compatible-with=(\d+))?")


@dataclass
class Request:
    method: str
    path: str
    endpoint: str
    headers: dict[str, str]
    query: dict[str, str]
    body: bytes


@dataclass
class Fault:
    """What happens to a request. `status` answers it; `hang` never does; `reset` breaks off in the middle of the answer; `delay`
    is seconds. `lost`: done nevertheless, only the answer is not what it should be."""

    on: str = "bulk"
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: str | None = None
    hang: bool = False
    reset: bool = False
    lost: bool = False
    delay: float = 0.0
    #: Requests it happens to; None = all until `heal`.
    times: int | None = None
    when: Callable[[Request], bool] = lambda request: True


class ContractServer:
    """One at a port of its own; `down` and `up` keep the port. `violations` must be empty at the end of each test."""

    def __init__(self, version: tuple[int, int] = (9, 5), tls: ssl.SSLContext | None = None) -> None:
        self.cluster = Cluster(version)
        self.requests: list[Request] = []
        self.violations: list[str] = []
        self.faults: list[Fault] = []
        self.product: str | None = "Elasticsearch"
        #: Value of the Authorization header that is asked for, and endpoints that it does not suffice for.
        self.authorization: str | None = None
        self.forbidden: set[str] = set()
        self.released = threading.Event()
        self._tls = tls
        self._http: ThreadingHTTPServer | None = None
        self._connections: set[socket.socket] = set()
        self.port = 0
        self.up()

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://localhost:{self.port}"

    def documents(self, name: str = "active-fusion-logs") -> dict[str, Any]:
        name = self.cluster.aliases.get(name, name)
        return self.cluster.indices[name].documents if name in self.cluster.indices else {}

    def bulks(self) -> list[Request]:
        return [request for request in self.requests if request.endpoint == "bulk"]

    def up(self) -> None:
        self._http = _Http(("127.0.0.1", self.port), _handler(self))
        self.port = self._http.server_address[1]
        if self._tls:
            self._http.socket = self._tls.wrap_socket(self._http.socket, server_side=True)
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def down(self) -> None:
        """Nobody listens, and connections that are open break."""
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._http = None
        for connection in list(self._connections):
            _break(connection)

    def heal(self) -> None:
        self.faults.clear()
        self.released.set()

    def stop(self) -> None:
        self.heal()
        self.down()

    @contextmanager
    def broken(self, **fault: Any) -> Iterator[None]:
        self.released.clear()
        self.faults.append(Fault(**fault))
        try:
            yield
        finally:
            self.heal()

    def fault_of(self, request: Request) -> Fault | None:
        for fault in self.faults:
            if fault.on in ("*", request.endpoint) and fault.times != 0 and fault.when(request):
                if fault.times is not None:
                    fault.times -= 1
                return fault
        return None

    def answer(self, request: Request) -> tuple[int, dict[str, Any]]:
        """What a healthy server says."""
        if self.authorization is not None and request.headers.get("authorization") != self.authorization:
            return error(401, "security_exception", "missing authentication credentials for REST request")
        if request.endpoint in self.forbidden:
            return error(403, "security_exception", f"action [{request.endpoint}] is unauthorized for API key id [x]")
        found = endpoint(request.method, request.path)
        if found is None:
            return self._violation(request, 400, f"no handler found for uri [{request.path}] and method [{request.method}]")
        name, parts = found
        refused = self._media_trouble(request)
        if refused:
            return error(400, "media_type_header_exception", refused)
        try:
            body = _parsed(request.body, lines=name == "bulk")
        except ValueError as problem:
            return self._violation(request, 400, str(problem))
        faults = faults_of_request(name, parts, *self._of_today(name, request.query, body))
        if faults:
            return self._violation(request, 400, "; ".join(faults))
        status, answer = self.cluster.call(name, {key: unquote(value) for key, value in parts.items()}, request.query, body)
        if name == "bulk" and status == 200:
            self.violations += [f"own answer: {fault}" for fault in faults_of_answer("_global.bulk.Response", answer)]
        if "filter_path" in request.query and status < 300:
            answer = filtered(answer, [path.split(".") for path in request.query["filter_path"].split(",")]) or {}
        return status, answer

    def _of_today(self, name: str, query: dict[str, str], body: Any) -> tuple[dict[str, str], Any]:
        """A request with what servers up to 7 took, and today's specification does not know, taken out."""
        if self.cluster.version >= (8, 0):
            return query, body
        query = {key: value for key, value in query.items() if key != "include_type_name"}
        if name == "bulk" and body:
            plain = {"_type"}
            actions = [
                {op: {k: v for k, v in about.items() if k not in plain} for op, about in line.items()} for line in body[::2]
            ]
            body = [line for pair in zip(actions, body[1::2], strict=False) for line in pair]
        if name == "indices.put_template" and body:
            body = {**body, "mappings": next(iter(body["mappings"].values()))}
        return query, body

    def _media_trouble(self, request: Request) -> str | None:
        sent = request.headers.get("content-type")
        if request.body and sent is None:
            return "Content-Type header is missing"
        versions = set()
        for value in filter(None, (sent, request.headers.get("accept"))):
            if value == "*/*":
                continue
            match = _MEDIA.fullmatch(value)
            if not match:
                return f"Invalid media-type value [{value}]"
            versions.add(int(match[2]) if match[2] else None)
        major = self.cluster.version[0]
        allowed = {None, major, major - 1} if major >= 8 else {None, 7}
        if len(versions) > 1 or not versions <= allowed:
            return f"A compatible version is required on both Content-Type and Accept headers, {major} or {major - 1}: {versions}"
        return None

    def _violation(self, request: Request, status: int, what: str) -> tuple[int, dict[str, Any]]:
        self.violations.append(f"{request.method} {request.path}: {what}")
        return error(status, "specification_violation", what)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 32


def _handler(server: ContractServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Without it each answer waits for the client's delayed acknowledgement of its head.
        wbufsize = -1

        def setup(self) -> None:
            super().setup()
            server._connections.add(self.connection)

        def finish(self) -> None:
            server._connections.discard(self.connection)
            try:
                super().finish()
            except OSError:
                pass  # broken off on purpose

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:
                pass

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            found = endpoint(self.command, parts.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, parts.path, found[0] if found else "", headers, dict(parse_qsl(parts.query)), body)
            server.requests.append(request)
            fault = server.fault_of(request)
            if fault is None or fault.lost or fault.delay:
                status, answer = server.answer(request)
                text, more = json.dumps(answer), {}
            if fault is not None:
                if fault.hang or fault.delay:
                    server.released.wait(fault.delay or 60)
                if fault.hang:
                    _break(self.connection)
                    self.close_connection = True
                    return
                if fault.status:
                    status, more = fault.status, fault.headers
                    text = fault.body if fault.body is not None else json.dumps({"error": "broken on purpose", "status": status})
                if fault.reset:
                    text, status, more = json.dumps({"took": 1}), 200, {"content-length": "100000"}
            self.send_response(status)
            lines = {"content-type": "application/json", "content-length": str(len(text.encode()))} | more
            if server.product:
                lines["X-Elastic-Product"] = server.product
            for name, value in lines.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())
            self.wfile.flush()
            if fault is not None and fault.reset:
                _break(self.connection)
                self.close_connection = True

        do_GET = do_PUT = do_POST = do_HEAD = _serve

    return Handler


def _break(connection: socket.socket) -> None:
    """With a reset instead of a farewell."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
        connection.close()
    except OSError:
        pass


def _parsed(body: bytes, *, lines: bool) -> Any:
    """Strict JSON, or strict NDJSON as a list. ValueError says what is wrong with it."""
    if not body:
        return None
    text = body.decode("utf-8")

    def loads(line: str) -> Any:
        return json.loads(line, object_pairs_hook=_no_twins, parse_constant=_no_constant)

    if not lines:
        return loads(text)
    if not text.endswith("\n"):
        raise ValueError("The bulk request must be terminated by a newline [\\n]")
    return [loads(line) for line in text[:-1].split("\n")]


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError(f"a key twice in {pairs!r}")
    return dict(pairs)


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON")
