"""The sandbox's HTTP server: a small asyncio protocol, because http.server answers a third as many requests per second."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from .ledger import CHANNELS, Fault, Ledger
from .shapes import Answer, Request, answer, channel_of, error_body

_MAX_HEAD = 32 * 1024
_MAX_BODY = 1024 * 1024


class _Bad(Exception):
    """A request that is not HTTP as the sandbox speaks it; args: status, words."""


class HttpProtocol(asyncio.Protocol):
    """One connection; requests one after the other, kept alive."""

    transport: asyncio.Transport

    def __init__(self, ledger: Ledger, loop: asyncio.AbstractEventLoop) -> None:
        self._ledger = ledger
        self._loop = loop
        self._buffer = b""
        self._busy = False
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Collect bytes; answer the next request unless one is being answered."""
        self._buffer += data
        if not self._busy:
            self._next()

    def eof_received(self) -> bool:
        """A client that says no more may still listen."""
        self._ended = True
        return self._busy

    def _next(self) -> None:
        try:
            request = self._parse()
        except _Bad as bad:
            status, words = bad.args
            self._reply(Answer(status, {"error": {"code": status, "message": words}}), close=True)
            return
        if request is None:
            return
        close = request.headers.get("connection", "").lower() == "close"
        channel = channel_of(request.path.partition("?")[0])
        fault = self._ledger.fault(channel) if channel else None
        if fault is not None and fault.delay:
            self._busy = True
            self._loop.call_later(fault.delay, self._serve, request, channel, fault, close)
        else:
            self._serve(request, channel, fault, close)

    def _parse(self) -> Request | None:
        """One whole request out of the buffer, or None if it has none yet."""
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            if len(self._buffer) > _MAX_HEAD:
                raise _Bad(431, "Request header fields too large")
            return None
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise _Bad(400, "Not an HTTP/1.1 request")
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon or name != name.strip():
                raise _Bad(400, "Malformed header")
            headers[name.lower()] = value.strip()
        if "transfer-encoding" in headers:
            raise _Bad(411, "Content-Length is required")
        length = headers.get("content-length", "0")
        if not length.isdecimal():
            raise _Bad(400, "Content-Length is not a number")
        if int(length) > _MAX_BODY:
            raise _Bad(413, "Body too large")
        if len(rest) < int(length):
            return None
        self._buffer = rest[int(length) :]
        return Request(words[0], words[1], headers, rest[: int(length)])

    def _serve(self, request: Request, channel: str, fault: Fault | None, close: bool) -> None:
        self._busy = False
        if fault is not None and fault.drop:
            self.transport.abort()
            return
        headers: dict[str, str] = {}
        if not channel:
            reply = _control(self._ledger, request)
        elif fault is not None and fault.status is not None:
            code = {"pn": {429: "QUOTA_EXCEEDED", 503: "UNAVAILABLE"}.get(fault.status, "INTERNAL")}.get(channel, "fault")
            reply = Answer(fault.status, error_body(channel, fault.status, code, "The service is not available right now"))
            if fault.retry_after is not None:
                headers["Retry-After"] = str(fault.retry_after)
        else:
            reply = answer(channel, request, self._ledger.total + 1)
        if channel and reply.to:
            self._ledger.accept(channel, reply.to, request.headers, reply.text)
        elif channel:
            self._ledger.refuse(channel, reply.status)
        self._reply(reply, headers, close)
        if not close and self._buffer:
            self._next()
        if self._ended and not self._busy:
            self.transport.close()

    def _reply(self, reply: Answer, headers: Mapping[str, str] | None = None, close: bool = False) -> None:
        body = json.dumps(reply.body, separators=(",", ":")).encode()
        lines = [f"HTTP/1.1 {reply.status} {_PHRASES.get(reply.status, 'Status')}", "Content-Type: application/json"]
        lines += [f"Content-Length: {len(body)}", *(f"{name}: {value}" for name, value in (headers or {}).items())]
        if close:
            lines.append("Connection: close")
        self.transport.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        if close:
            self.transport.close()


_PHRASES = {status.value: status.phrase for status in HTTPStatus}


def _control(ledger: Ledger, request: Request) -> Answer:
    """The sandbox's own addresses, under /_."""
    path, _, query = request.path.partition("?")
    match request.method, path:
        case "GET", "/_deliveries":
            since = parse_qs(query).get("since", ["0"])[0]
            return Answer(200, ledger.deliveries(int(since))) if since.isdecimal() else _wrong("since must be a number")
        case "GET", "/_stats":
            return Answer(200, ledger.stats())
        case "POST", "/_faults":
            return _arm(ledger, request.body)
        case "DELETE", "/_faults":
            ledger.faults.clear()
            return Answer(200, {"faults": 0})
        case "DELETE", "/_deliveries":
            ledger.clear()
            return Answer(200, {"total": 0})
        case _:
            return Answer(404, {"error": {"code": 404, "message": f"Nothing at {path[:100]}; channels: {', '.join(CHANNELS)}"}})


def _arm(ledger: Ledger, body: bytes) -> Answer:
    try:
        wish: Any = json.loads(body)
    except ValueError:
        wish = None
    wrong = ledger.add_fault(wish) if isinstance(wish, dict) else "the body must be a JSON object"
    return _wrong(wrong) if wrong else Answer(200, {"faults": len(ledger.faults)})


def _wrong(words: str) -> Answer:
    return Answer(400, {"error": {"code": 400, "message": words}})
