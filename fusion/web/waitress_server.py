"""Run the core under waitress: one thread does all reading and writing, others answer. Only `run_worker.py server` needs this module."""

from __future__ import annotations

import logging
import signal
import socket
import time
from collections import Counter
from types import FrameType
from typing import Any

from waitress import wasyncore  # type: ignore[import-untyped]
from waitress.channel import HTTPChannel  # type: ignore[import-untyped]
from waitress.parser import HTTPRequestParser, ParsingError  # type: ignore[import-untyped]
from waitress.server import create_server  # type: ignore[import-untyped]
from waitress.task import ErrorTask  # type: ignore[import-untyped]

from fusion.web.app import App
from fusion.web.exchange import HttpError, Request
from fusion.web.limiter import network

log = logging.getLogger("fusion.web")

#: Most bytes of a request line with its headers.
MAX_HEADERS = 16 * 1024
#: Most seconds from a request's first byte to its last.
REQUEST_TIMEOUT = 30.0
#: Seconds of silence after which a connection is closed.
IDLE_TIMEOUT = 30
#: Open connections at most, below the usual limit of 1,024 files. Above that, the connection that has been idle longest is closed.
CONNECTIONS = 500
#: Seconds between two log lines about closed connections.
_CROWDED_LINE = 60.0
#: Seconds that requests have to end when the server stops.
GRACE = 10.0
#: Bytes above the core's limit of a body that are still read, so that the core itself refuses the body.
_MARGIN = 64 * 1024

_REFUSALS = {
    400: ("bad_request", "this is not a valid HTTP request"),
    413: ("body_too_large", "the body is too large; store big data elsewhere and send its key"),
    431: ("headers_too_large", f"the request line and the headers are over {MAX_HEADERS} bytes; send fewer"),
    501: ("not_implemented", "this transfer encoding is not supported; send the body with Content-Length or chunked"),
}


class _ErrorTask(ErrorTask):  # type: ignore[misc]
    """Answers and logs, like the core, requests that waitress refuses before the core gets them."""

    def execute(self) -> None:
        status = self.request.error.code
        code, message = _REFUSALS.get(status, ("internal", "something went wrong here"))
        request = Request("", "", {}, client=str(self.channel.addr[0]))
        response = self.channel.server.fusion_app.refuse(HttpError(status, code, message), request)
        self.status = response.status_line
        self.response_headers.extend(pair for pair in response.header_list() if pair[0] != "Content-Length")
        self.set_close_on_finish()
        self.content_length = len(response.body)
        self.write(response.body)


class _Parser(HTTPRequestParser):  # type: ignore[misc]
    """Refuses requests that two readers could understand differently (request smuggling). The connection is then closed, so that its remaining
    bytes are not read as another request."""

    def parse_header(self, header_plus: bytes) -> None:
        super().parse_header(header_plus)
        # For HTTP/1.1 waitress has removed the transfer encoding from the headers.
        if "TRANSFER_ENCODING" in self.headers or (self.chunked and "CONTENT_LENGTH" in self.headers):
            raise ParsingError("two lengths of one body")
        if self.path.startswith("//"):  # waitress would treat `//` as `/`
            raise ParsingError("an empty part of the path")


class _Channel(HTTPChannel):  # type: ignore[misc]
    """A connection with a time limit for each request. Waitress itself waits forever for a client that sends a byte now and then."""

    error_task_class = _ErrorTask
    parser_class = _Parser
    _until = 0.0

    def __init__(self, server: Any, sock: socket.socket, addr: Any, adj: Any, map: Any = None) -> None:
        super().__init__(server, sock, addr, adj, map)
        self.client = network(str(addr[0]))
        #: When its last request was complete, or when it was opened.
        self.since = time.monotonic()

    def received(self, data: bytes) -> bool:
        before, moment = self.request, time.monotonic()
        if before is not None and moment > self._until:
            self.will_close = True
            return False
        taken = bool(super().received(data))
        if self.requests:
            self.since = moment
        if self.request is not None and self.request is not before:
            self._until = moment + self.server.request_timeout
        return taken

    @property
    def at_rest(self) -> bool:
        return not self.requests and self.request is None and not self.total_outbufs_len


class WebServer:
    """Serves on a listening socket until INT or TERM. Open requests are answered first; a second signal ends it at once."""

    def __init__(
        self,
        app: App,
        listener: socket.socket,
        *,
        threads: int = 8,
        request_timeout: float = REQUEST_TIMEOUT,
        grace: float = GRACE,
    ) -> None:
        # Below this level it logs a line per request under load. At this level its lines quote nothing of a request.
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)
        logging.getLogger("waitress").setLevel(logging.WARNING)
        self._map: dict[int, Any] = {}
        self._server = create_server(
            app,
            map=self._map,
            sockets=[listener],
            threads=threads,
            ident=None,
            connection_limit=CONNECTIONS,
            channel_timeout=IDLE_TIMEOUT,
            cleanup_interval=5,
            max_request_header_size=MAX_HEADERS + 1,  # waitress also refuses a body of exactly this size
            max_request_body_size=app.max_body + _MARGIN,
            clear_untrusted_proxy_headers=False,  # nothing trusts them: they show that a request was passed on
            asyncore_use_poll=True,
        )
        self._server.channel_class = _Channel
        self._server.fusion_app, self._server.request_timeout = app, request_timeout
        self._stops, self._grace, self._ended = 0, grace, False
        self._told = float("-inf")

    def stopping(self) -> bool:
        """Return True once the process was asked to end."""
        return self._stops > 0

    def install_signals(self) -> None:
        """End the service on INT or TERM: after the first when all requests are answered, after the second at once. Ignore HUP."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        # Tokens are read again automatically. A HUP that is meant for that must not end the process.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stops += 1
        if not self._ended:
            self._server.pull_trigger()

    def run(self) -> int:
        """Serve until a signal; return 0 if all requests were answered, 1 if some were cut off."""
        while not self._stops:
            self._turn(1.0)
        log.info("stopping: no new connections; requests under way are answered")
        self._server.del_channel()
        self._server.socket.close()
        deadline = time.monotonic() + self._grace
        while (left := self._busy()) and self._stops < 2 and time.monotonic() < deadline:
            self._turn(0.1)
        self._ended = True  # the trigger is closed, so a signal must no longer use it
        self._server.task_dispatcher.shutdown(timeout=0.5)
        wasyncore.close_all(self._map)
        log.info("ended%s", f"; {left} requests were cut off" if left else "")
        return 1 if left else 0

    def _turn(self, seconds: float) -> None:
        while len(self._map) >= CONNECTIONS and self._make_room():
            pass
        wasyncore.loop(timeout=seconds, map=self._map, use_poll=True, count=1)

    def _make_room(self) -> bool:
        """Close one connection: of the client with the most connections, the one whose last request is oldest. A connection whose request is being
        answered is never closed; return False if all are of that kind. So idle connections, however many, lock out nobody, not even a probe."""
        silent = [channel for channel in self._server.active_channels.values() if not channel.requests]
        if not silent:
            return False
        held = Counter(channel.client for channel in silent)
        chosen = min(silent, key=lambda channel: (-held[channel.client], channel.since))
        moment = time.monotonic()
        if moment - self._told > _CROWDED_LINE:
            self._told = moment
            log.warning(
                "all %d connections are taken, %d of them by %s: the ones that are silent longest are closed",
                len(self._map),
                held[chosen.client],
                chosen.client,
            )
        chosen.handle_close()
        return True

    def _busy(self) -> int:
        """Close the idle connections; return the number of those that still have something to send."""
        for channel in list(self._server.active_channels.values()):
            if channel.at_rest:
                channel.handle_close()
        return len(self._server.active_channels)
