"""The receiver of webhooks about mails: slow, and at first out of order."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class Shop:
    """An HTTP server, as a context manager. `told`: when each mail was told of and taken; `calls`: all calls of it."""

    def __init__(self) -> None:
        self.told: dict[str, list[float]] = {}
        self.calls: dict[str, int] = {}
        #: Seconds until an answer, and how many calls for each mail are refused with 503.
        self.slow, self.refused = 0.0, 0

    def __enter__(self) -> Shop:
        shop = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                named = parse_qs(urlsplit(self.path).query).get("id")
                job = named[0] if named else body.decode()
                shop.calls[job] = call = shop.calls.get(job, 0) + 1
                time.sleep(shop.slow)
                if call > shop.refused:
                    shop.told.setdefault(job, []).append(time.time())
                self.send_response(200 if call > shop.refused else 503)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/told"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
