"""The server process: limits, slow clients, logs, Redis away, a warm end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from fusion.web.app import App
from fusion.web.auth import no_auth
from fusion.web.exchange import Request, Response
from fusion.web.routing import Route
from fusion.web.waitress_server import MAX_HEADERS, WebServer
from tests.kit.private_redis import PrivateRedis
from tests.kit.process import ROOT
from tests.kit.waiting import eventually
from tests.web.conftest import Fail, Start
from tests.web.harness import ServerProcess, Tokens

OK = b"HTTP/1.1 200 "

# -- limits and broken requests


@pytest.mark.parametrize(("size", "status"), [(MAX_HEADERS - 1, 200), (MAX_HEADERS, 200), (MAX_HEADERS + 1, 431)])
def test_the_limit_of_headers(service: ServerProcess, size: int, status: int) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Pad: "
    answer = service.raw(head + b"x" * (size - len(head) - 4) + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.%d %d " % (1 if status == 200 else 0, status))
    if status == 431:
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "headers_too_large"


@pytest.mark.parametrize(
    ("request_line", "status", "code"),
    [
        (b"GET /healthz HTTP/1.1\r\nbad\r\n\r\n", 400, "bad_request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400, "bad_request"),
        (b"GET /healthz HTTP/1.1\r\nX: a\rb\r\n\r\n", 400, "bad_request"),
        (b"GET /healthz HTTP/1.1\r\nX: a\x00b\r\n\r\n", 400, "bad_request"),
        (b"POST /api/v1/jobs HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400, "bad_request"),
        (b"POST /api/v1/jobs HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "bad_request"),
        (b"POST /api/v1/jobs HTTP/1.1\r\nTransfer-Encoding: chunked\r\ncontent-length: 0\r\n\r\n0\r\n\r\n", 400, "bad_request"),
        (
            b"POST /api/v1/jobs HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
            400,
            "bad_request",
        ),
        (b"GET //healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad_request"),
        (b"GET http://localhost//healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad_request"),
        (b"GET //localhost/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad_request"),
        (b"POST /api/v1/jobs HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "not_implemented"),
        (b"POST /api/v1/jobs HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "bad_request"),
    ],
)
def test_what_is_no_request_is_refused_as_everything_is(
    service: ServerProcess, request_line: bytes, status: int, code: str
) -> None:
    at = len(service.output)
    head, _, body = service.raw(request_line).partition(b"\r\n\r\n")
    assert head.split(b" ", 2)[1] == b"%d" % status
    assert json.loads(body)["error"]["code"] == code
    assert b"x-content-type-options: nosniff" in head.lower()
    assert b"waitress" not in head + body
    assert eventually(lambda: re.search(rf"127\.0\.0\.1 - - - {status} \d+B ", service.output[at:]))


def test_no_header_of_an_answer_can_be_made_by_a_request(service: ServerProcess, tokens: Tokens, conn: redis.Redis) -> None:
    token = tokens.by_scope["operate"]
    body = {"func": "tests.jobs.basic.noop"}
    for name in ("a\r\nX-Injected: 1", "a%0d%0aX-Injected:1", "a\nX-Injected: 1"):
        answer = service.ask("POST", "/api/v1/jobs", {**body, "job_id": name}, token=token)
        assert (answer.status, "x-injected" in answer.headers) == (422, False)
    for path in ("/api/v1/jobs/%0d%0aX-Injected:%201", "/%0d%0aX-Injected:%201", "/retryTask/%0d%0aX-Injected:%201"):
        assert "x-injected" not in service.ask("GET", path, token=token).headers
    assert conn.dbsize() == 0
    with pytest.raises(ValueError, match="no header may hold"):
        Response(headers={"Location": "/a\r\nX: b"}).header_list()


def test_two_requests_on_one_connection(service: ServerProcess) -> None:
    answer = service.raw(
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nHEAD /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    assert answer.count(OK) == 2
    assert answer.count(b'{"status": "ok"}\n') == 1


def test_every_answer_has_the_headers_that_protect(service: ServerProcess, tokens: Tokens) -> None:
    for path, status in (("/healthz", 200), ("/nothing", 404), ("/api/v1/queues", 401)):
        answer = service.ask("GET", path)
        assert answer.status == status
        expected = {
            "content-type": "application/json",
            "x-content-type-options": "nosniff",
            "cache-control": "no-store",
            "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
            "x-frame-options": "DENY",
            "referrer-policy": "no-referrer",
            "content-length": str(len(answer.body)),
        }
        assert {name: answer.headers.get(name) for name in expected} == expected
        assert "server" not in answer.headers
        head = service.ask("HEAD", path)
        assert (head.status, head.body, head.headers["content-length"]) == (status, b"", answer.headers["content-length"])


# -- slow clients


class Inside:
    """The server in a thread of the test, with a route that waits for the test."""

    def __init__(self, **more: float) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        app = App([Route("GET", "/wait", self._wait, None, "wait"), Route("GET", "/", self._now, None, "now")], no_auth)
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = listener.getsockname()
        self.server = WebServer(app, listener, **more)  # type: ignore[arg-type]
        self.code: int | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self.code = self.server.run()

    def _wait(self, request: Request) -> Response:
        self.begun.set()
        assert self.go.wait(20)
        return Response.json({})

    def _now(self, request: Request) -> Response:
        return Response.json({})

    def connect(self, text: bytes) -> socket.socket:
        sock = socket.create_connection(self.address, timeout=20)
        sock.sendall(text)
        return sock

    def signal(self) -> None:
        self.server._stop(signal.SIGTERM, None)


@pytest.fixture
def inside() -> Iterator[type[Inside]]:
    made: list[Inside] = []

    class Kept(Inside):
        def __init__(self, **more: float) -> None:
            super().__init__(**more)
            made.append(self)

    yield Kept
    for one in made:
        one.go.set()
        one.signal()
        one.signal()
        one.thread.join(10)


def test_a_request_that_drips_is_given_up(inside: type[Inside]) -> None:
    server = inside(request_timeout=0.2)
    sock = server.connect(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")

    def closed() -> bool:
        try:
            sock.sendall(b"x")
            sock.setblocking(False)
            return sock.recv(1) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            sock.setblocking(True)

    eventually(closed, interval=0.05, why="the connection is closed")
    sock.close()
    kept = server.connect(b"")
    for _ in range(3):  # the time is that of each request, not of the connection
        kept.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert _answer_on(kept).startswith(OK)
        begin = time.monotonic()
        eventually(lambda begin=begin: time.monotonic() - begin > 0.15)  # type: ignore[misc]
    kept.close()


def _answer_on(sock: socket.socket) -> bytes:
    """One answer of `Inside`, which may come in pieces."""
    found = b""
    while not found.endswith(b"{}\n"):
        part = sock.recv(65536)
        assert part, found
        found += part
    return found


# -- its end


def test_a_request_under_way_is_answered_before_the_end(inside: type[Inside]) -> None:
    server = inside()
    waiting, idle = server.connect(b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n"), server.connect(b"")
    assert server.begun.wait(10)
    server.signal()
    assert idle.recv(1) == b"", "connections at rest are closed"
    with pytest.raises(ConnectionRefusedError):
        eventually(lambda: server.connect(b"").close(), timeout=5)
    assert server.thread.is_alive()
    server.go.set()
    assert _answer_on(waiting).startswith(OK)
    server.thread.join(10)
    assert server.code == 0


def test_a_second_signal_waits_for_nobody(inside: type[Inside]) -> None:
    server = inside()
    waiting = server.connect(b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert server.begun.wait(10)
    server.signal()
    server.signal()
    server.thread.join(10)
    assert (server.thread.is_alive(), server.code) == (False, 1)
    waiting.close()


def test_one_that_never_ends_is_cut_off(inside: type[Inside]) -> None:
    server = inside(grace=0.1)
    server.connect(b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert server.begun.wait(10)
    server.signal()
    server.thread.join(10)
    assert (server.thread.is_alive(), server.code) == (False, 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process(start: Start, redis_url: str, tmp_path: Path, number: int) -> None:
    pid = tmp_path / "pid"
    server = start(redis_url, "--no-auth", "--pid", str(pid))
    assert pid.read_text() == str(server.process.pid)
    os.kill(server.process.pid, signal.SIGHUP)
    assert server.ask("GET", "/readyz").status == 200, "a HUP is no end"
    os.kill(server.process.pid, number)
    assert server.process.wait(15) == 0
    assert not pid.exists()
    assert server.output.endswith("ended\n")
    assert "Traceback" not in server.output


# -- Redis away


def test_redis_away_is_503_and_over_when_it_is_back(start: Start, private_redis: PrivateRedis, tokens: Tokens) -> None:
    server = start(private_redis.url, "--tokens", str(tokens.path))
    asked = [
        ("GET", "/healthz", None),
        ("GET", "/readyz", None),
        ("GET", "/api/v1/queues", None),
        ("GET", "/api/v1/queues/sms/stats", None),
        ("GET", "/api/v1/jobs/a", None),
        ("POST", "/api/v1/jobs", {"func": "tests.jobs.basic.noop", "job_id": "a"}),
        ("POST", "/retryTask/", {"job_id": "a"}),
    ]

    def ask() -> list[int]:
        answers = [server.ask(method, path, body, token=tokens.by_scope["operate"]) for method, path, body in asked]
        for answer in answers:
            if answer.status == 503:
                assert answer.code == "redis_unavailable"
                assert int(answer.headers["retry-after"]) > 0
                assert private_redis.url.removeprefix("unix://").encode() not in answer.body
        return [answer.status for answer in answers]

    assert ask() == [200, 200, 200, 404, 404, 201, 409]
    private_redis.kill()
    assert ask() == [503] * 7
    private_redis.revive()
    assert ask() == [200, 200, 200, 404, 200, 409, 409], "and the first request finds it"
    assert 1 <= len(re.findall("answering 503: ", server.output)) <= 2, "one line, not one per request"
    assert "Traceback" not in server.output


@pytest.mark.long
def test_a_redis_that_hangs_is_503_in_bounded_time(start: Start, private_redis: PrivateRedis) -> None:
    server = start(private_redis.url, "--no-auth", env={"FUSION_SOCKET_TIMEOUT": "0.2"})
    assert server.ask("GET", "/healthz").status == 200
    private_redis.pause()
    assert server.ask("GET", "/healthz").status == 503
    private_redis.resume()
    assert server.ask("GET", "/healthz").status == 200


def test_it_starts_before_its_redis(start: Start, private_redis: PrivateRedis) -> None:
    private_redis.kill()
    server = start(private_redis.url, "--no-auth")
    assert server.ask("GET", "/healthz").status == 503
    private_redis.revive()
    assert server.ask("GET", "/healthz").status == 200


@pytest.mark.long
def test_a_full_redis_is_503_and_nothing_is_written(start: Start, private_redis: PrivateRedis) -> None:
    server = start(private_redis.url, "--no-auth")
    private_redis.conn.config_set("maxmemory", "1")
    answer = server.ask("POST", "/api/v1/jobs", {"func": "tests.jobs.basic.noop"})
    private_redis.conn.config_set("maxmemory", "0")
    assert (answer.status, answer.code, private_redis.conn.dbsize()) == (503, "redis_unavailable", 0)


# -- logs


def test_a_line_per_request_without_secrets(service: ServerProcess, tokens: Tokens, fail: Fail, source: str) -> None:
    fail("a")
    at, canary = len(service.output), "S3CR3T-canary"
    token = tokens.by_scope["operate"]
    service.ask("GET", f"/api/v1/jobs?query=func:{canary}", token=token)
    service.ask("GET", "/api/v1/queues", token=canary, source=source)
    service.ask(
        "POST", "/api/v1/jobs", {"func": "tests.jobs.basic.noop", "args": [canary]}, token=token, headers={"X-Secret": canary}
    )
    service.ask("POST", "/api/v1/jobs", {"func": canary}, token=token, headers={"Idempotency-Key": canary, "Cookie": canary})
    service.ask("GET", "/api/v1/jobs/a?include=result", token=token)
    lines = eventually(
        lambda: [line for line in service.output[at:].splitlines() if "ms" in line][4:] and service.output[at:].splitlines()
    )
    requests = [line.split(" ", 1)[1] for line in lines if "audit:" not in line]
    assert [re.sub(r"\d+B [\d.]+ms", "B ms", line) for line in requests] == [
        "127.0.0.1 operateer GET /api/v1/jobs 200 B ms",
        f"{source} - GET /api/v1/queues 401 B ms",
        "127.0.0.1 operateer POST /api/v1/jobs 201 B ms",
        "127.0.0.1 operateer POST /api/v1/jobs 422 B ms",
        "127.0.0.1 operateer GET /api/v1/jobs/a 200 B ms",
    ]
    assert canary not in service.output
    for known in tokens.by_scope.values():
        assert known not in service.output


@pytest.mark.parametrize("log", ["text", "json"])
def test_a_hostile_path_stays_in_its_line(start: Start, redis_url: str, log: str) -> None:
    """A request can forge no line of the log."""
    server = start(redis_url, "--no-auth", *(["--log-json"] if log == "json" else []))
    at = len(server.output)
    hostile = '/%0a{"level":"info"%1b[31m%0d%00%e2%80%a8%20200 5B'.replace(" ", "%20")
    server.ask("GET", hostile)
    server.ask("GET", "/" + "x" * 5000)
    server.raw(b"\x1b[31mGET\n / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    lines = eventually(lambda: server.output[at:].splitlines()[2:] and server.output[at:].splitlines())
    assert len(lines) == 3
    for line in lines:
        assert line.isascii()
        assert line.isprintable()
        assert len(line) < 500
        if log == "json":
            assert json.loads(line)["logger"] == "fusion.web.access"
    assert "/%0A%7B%22level%22%3A%22info%22%1B%5B31m%0D%00%E2%80%A8%20200%205B 404" in lines[0]


@pytest.mark.long
def test_quiet_still_tells_who_changed_what(redis_url: str) -> None:
    server = ServerProcess.__new__(ServerProcess)
    with socket.create_server(("127.0.0.1", 0)) as free:
        server.host, server.port = free.getsockname()
    server.log = Path(os.environ["FUSION_HOME"]).parent / f"quiet-{os.getpid()}.log"
    with server.log.open("wb") as out:
        command = [sys.executable, "run_worker.py", "server", "--no-auth", "-q", "--port", str(server.port), "--url", redis_url]
        server.process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)
    try:
        eventually(lambda: _reachable(server), 15)
        server.ask("POST", "/api/v1/jobs", {"func": "tasks.sms.sendSMS"})
        (line,) = eventually(lambda: server.output.splitlines())
        assert "audit: " in line
        assert "actor=anonymous client=127.0.0.1 action=enqueue" in line
    finally:
        server.stop()


def _reachable(server: ServerProcess) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex((server.host, server.port)) == 0
