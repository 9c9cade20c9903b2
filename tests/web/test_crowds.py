"""Many clients, slow ones, and large bodies: none keeps another waiting."""

from __future__ import annotations

import json
import re
import socket
import time

from fusion.web.waitress_server import CONNECTIONS
from tests.web.harness import ServerProcess, Tokens, read

OK = b"HTTP/1.1 200 "


def test_slow_clients_keep_nobody_waiting(service: ServerProcess) -> None:
    """Slowloris: more of them than there are threads, in the middle of headers and of bodies."""
    started = (
        b"GET /healthz HTTP/1.1\r\nHost: loc",
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{",
    )
    slow = [socket.create_connection((service.host, service.port), timeout=20) for _ in range(60)]
    try:
        for number, sock in enumerate(slow):
            sock.sendall(started[number % 2])
        for _ in range(5):
            assert service.ask("GET", "/healthz").status == 200
        slow[0].sendall(b"alhost\r\nConnection: close\r\n\r\n")
        assert slow[0].recv(65536).startswith(OK), "one that goes on is answered"
    finally:
        for sock in slow:
            sock.close()


def test_silent_connections_keep_no_probe_waiting(service: ServerProcess, source: str) -> None:
    """More of one client than the server keeps: another's stays, whatever state it is in, and is answered."""
    silent: list[socket.socket] = []
    upload = service.connect(source)
    body = json.dumps({"func": "tests.jobs.basic.noop"}).encode()
    upload.putrequest("POST", "/api/v1/jobs")
    upload.putheader("Content-Length", str(len(body)))
    upload.endheaders(body[:1])
    try:
        for number in range(CONNECTIONS + 20):
            silent.append(socket.create_connection((service.host, service.port), timeout=20))
            if number % 2:
                silent[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: loc")
        begin = time.monotonic()
        assert service.ask("GET", "/healthz", source=source).status == 200
        assert service.ask("GET", "/healthz").status == 200, "the same client, too"
        assert time.monotonic() - begin < 10, "long before a silent connection is given up"
        upload.send(body[1:])
        assert read(upload.getresponse()).code == "unauthorized"
        assert len(re.findall("connections are taken, .* of them by 127.0.0.1", service.output)) == 1
    finally:
        upload.close()
        for sock in silent:
            sock.close()


def test_no_body_of_a_megabyte_holds_the_service_up(service: ServerProcess, tokens: Tokens) -> None:
    """One key twice among 70,000."""
    body = ("{" + "".join(f'"{n}":1,' for n in range(70_000)) + '"x":1,"x":2}').encode()
    begin = time.monotonic()
    answer = service.ask("POST", "/api/v1/jobs", body, token=tokens.by_scope["operate"])
    assert (answer.status, answer.code) == (400, "bad_json")
    assert "'x' occurs twice" in answer.json["error"]["message"]
    assert time.monotonic() - begin < 10
