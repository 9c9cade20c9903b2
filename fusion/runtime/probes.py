"""Answers health probes over HTTP from the process's own loop, so that an answer proves that the loop turns. Nothing here waits."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

from fusion.exceptions import ConfigurationError
from fusion.runtime.loop import Loop

log = logging.getLogger("fusion.runtime")

#: Writes a page: returns the type of its content, and the content. ConfigurationError: it can't be made here.
Page = Callable[[], tuple[str, bytes]]

#: Bytes of a request, and seconds in which it must have come.
_LONGEST = 1024
_PATIENCE = 2.0
#: The header that names this host, without its port.
_HOST = re.compile(rb"(?im)^host:[ \t]*([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::\d+)?[ \t]*\r?$")
#: Most pages that are written at a time; and seconds that a client has to take one.
_PAGES, _TAKING = 2, 5.0
#: Most open connections. One more closes the oldest, so that idle connections never block a probe.
_CONNECTIONS = 16
_STATUS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
}


@dataclass(frozen=True)
class HealthReport:
    """The answer to one probe: healthy if `reasons` is empty. `facts`: more fields of the JSON answer. `warnings`: lines that are shown,
    and cause no 503."""

    reasons: list[str] = field(default_factory=list)
    facts: Mapping[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


class _Client:
    def __init__(self, channel: socket.socket, until: float) -> None:
        self.channel, self.until, self.request = channel, until, b""


class Probes:
    """Answers GET of each path in `checks`: 200 if the report has no reasons, else 503.

    The answer is text, or JSON if the client accepts that or adds `?json`. Call `open` to start listening.

    `pages`: other paths. The loop calls the function, with the host by which the client calls this one. It takes a copy of what the page
    shows; a thread of its own writes the page, as that may take longer than the loop may stand.
    """

    def __init__(
        self,
        loop: Loop,
        checks: Mapping[str, Callable[[], HealthReport]],
        pages: Mapping[str, Callable[[str], Page]] | None = None,
    ) -> None:
        self._loop, self._checks, self._pages = loop, checks, pages or {}
        self._writers = threading.BoundedSemaphore(_PAGES)
        self._clients: dict[int, _Client] = {}
        #: When the first open connection runs out of time for its request.
        self.next_at = inf
        self._listener: socket.socket | None = None

    def open(self, host: str, port: int) -> str:
        """Start listening; return the url. ConfigurationError if the address can't be used."""
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            listener = socket.create_server((address[0], port), family=family, backlog=_CONNECTIONS)
        except OSError as error:
            raise ConfigurationError(
                f"probes can't listen at {host} port {port}: {error.strerror}; choose another --probe-port, or 0 for any",
                code="FUS-229",
            ) from None
        listener.setblocking(False)
        self._listener = listener
        self._loop.watch(listener.fileno(), lambda: self._accept(listener))
        host, port = listener.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def tick(self, now: float) -> None:
        """Close connections whose request did not come in time."""
        for fd in [fd for fd, client in self._clients.items() if now >= client.until]:
            self._drop(fd)

    def close(self) -> None:
        """Listen no more, and end open connections."""
        if self._listener is not None:
            self._loop.unwatch(self._listener.fileno())
            self._listener.close()
        for fd in list(self._clients):
            self._drop(fd)

    def _accept(self, listener: socket.socket) -> None:
        try:
            channel, _ = listener.accept()
        except OSError:
            return
        channel.setblocking(False)
        if len(self._clients) >= _CONNECTIONS:
            self._drop(next(iter(self._clients)))
        fd = channel.fileno()
        self._clients[fd] = _Client(channel, time.monotonic() + _PATIENCE)
        self._set_time()
        self._loop.watch(fd, partial(self._read, fd))

    def _read(self, fd: int) -> None:
        client = self._clients[fd]
        try:
            data = client.channel.recv(_LONGEST + 1)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        client.request += data
        done = b"\r\n\r\n" in client.request or b"\n\n" in client.request
        if data and not done and len(client.request) <= _LONGEST:
            return
        if data:
            answer = self._answer(client.request) if done else _response(431, {})
            if isinstance(answer, bytes):
                self._send(client.channel, answer)
            else:
                self._hand_over(fd, answer)
                return
        self._drop(fd)

    def _hand_over(self, fd: int, write: Callable[[], bytes]) -> None:
        """Have a thread write the page and send it. It closes the connection, which the loop forgets."""
        if not self._writers.acquire(blocking=False):
            self._send(self._clients[fd].channel, _response(503, {"reasons": ["other pages are being written; ask again"]}))
            self._drop(fd)
            return
        channel = self._clients.pop(fd).channel
        self._set_time()
        self._loop.unwatch(fd)
        threading.Thread(target=self._write, args=(channel, write), name="page", daemon=True).start()

    def _write(self, channel: socket.socket, write: Callable[[], bytes]) -> None:
        try:
            with channel:
                channel.settimeout(_TAKING)
                channel.sendall(write())
                channel.shutdown(socket.SHUT_WR)
                channel.recv(65536)  # see `_send`
        except OSError:
            pass  # the client is gone
        finally:
            self._writers.release()

    def _answer(self, request: bytes) -> bytes | Callable[[], bytes]:
        words = request.split(b"\n", 1)[0].decode("latin-1").split()
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _response(400, {})
        method, target, _ = words
        path, _, query = target.partition("?")
        check, page = self._checks.get(path), self._pages.get(path)
        if check is None and page is None:
            return _response(404, {"paths": [*self._checks, *self._pages]})
        if method not in ("GET", "HEAD"):
            return _response(405, {})
        if page is not None:
            host = _HOST.search(request)
            return partial(_written, page(host[1].decode() if host else ""), head=method == "HEAD")
        assert check is not None
        report = check()
        document = {"status": "error" if report.reasons else "ok", "reasons": report.reasons, **report.facts}
        if report.warnings:
            document["warnings"] = report.warnings
        as_json = query == "json" or b"application/json" in request.lower()
        return _response(503 if report.reasons else 200, document, as_json=as_json, head=method == "HEAD")

    @staticmethod
    def _send(channel: socket.socket, response: bytes) -> None:
        try:
            channel.send(response)  # a fresh socket's buffer takes far more
            channel.shutdown(socket.SHUT_WR)
            channel.recv(65536)  # unread data would turn the close into a reset, and the client could lose the answer
        except OSError:
            pass

    def _drop(self, fd: int) -> None:
        client = self._clients.pop(fd)
        self._set_time()
        self._loop.unwatch(fd)
        client.channel.close()

    def _set_time(self) -> None:
        self.next_at = min((client.until for client in self._clients.values()), default=inf)


def _written(page: Page, *, head: bool) -> bytes:
    try:
        kind, body = page()
    except ConfigurationError as error:
        return _response(501, {"reasons": [str(error)]}, head=head)
    except Exception:
        log.exception("a page of the probes can't be written")
        return _response(500, {}, head=head)
    return _whole(200, kind, body, head=head)


def _response(status: int, document: Mapping[str, Any], *, as_json: bool = False, head: bool = False) -> bytes:
    if as_json:
        kind, text = "application/json", json.dumps(document)
    else:
        lines = [*document.get("reasons", ()), *document.get("paths", ())] or [_STATUS[status].lower()]
        kind, text = "text/plain; charset=utf-8", "\n".join([*lines, *document.get("warnings", ())])
    return _whole(status, kind, (text + "\n").encode(), head=head)


def _whole(status: int, kind: str, body: bytes, *, head: bool) -> bytes:
    head_lines = [
        f"HTTP/1.0 {status} {_STATUS[status]}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    return "\r\n".join([*head_lines, "", ""]).encode() + (b"" if head else body)
