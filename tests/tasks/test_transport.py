"""The HTTP client itself: deadlines, answers that break off, redirects, proxies, TLS."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path

import pytest
import requests
import trustme

from tasks.providers.base import Message, ProviderRejected
from tasks.providers.reply import Reply, accepted
from tasks.providers.transport import MAX_REPLY, call, tls_context
from tests.tasks.conftest import RawServer

Start = Callable[[Callable[[socket.socket], None]], RawServer]
MESSAGE = Message(to=("+9992015551234",), masked="+99***34")


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    tls_context.cache_clear()
    yield
    tls_context.cache_clear()


@pytest.mark.parametrize("head", [b"200 OK", b"302 Found\r\nLocation: http://127.0.0.1/x"])
def test_a_body_that_drips_for_ever_is_left_when_the_time_is_over(raw_server: Start, head: bytes) -> None:
    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 " + head + b"\r\n\r\n")
        while True:  # each byte in time for a timeout that is counted per read
            connection.sendall(b"X")
            threading.Event().wait(0.02)

    server = raw_server(drip)
    begin = time.monotonic()
    assert call("GET", server.url, headers={}, body=b"", timeout=0.4).status == int(head[:3])
    assert 0.4 <= time.monotonic() - begin < 5


def test_no_answer_in_time_is_requests_own_error(raw_server: Start) -> None:
    def wait(connection: socket.socket) -> None:
        connection.recv(1)

    server = raw_server(wait)
    with pytest.raises(requests.ReadTimeout) as caught:
        call("POST", f"{server.url}/secret-path?key=secret", headers={"X": "secret"}, body=b"secret", timeout=0.2)
    assert str(caught.value) == f"{server.url.removeprefix('http://')}: no answer within 0.2 s"
    assert caught.value.__context__ is None
    assert caught.value.request is None


def test_a_body_that_breaks_off_after_200_is_not_sent_again(raw_server: Start) -> None:
    server = raw_server(lambda c: c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"))
    reply = accepted(call("POST", server.url, headers={}, body=b"x", timeout=5), "p", MESSAGE)
    assert (reply.status, reply.json()) == (200, {})


def test_no_more_is_read_than_a_receipt_needs(raw_server: Start) -> None:
    server = raw_server(lambda c: c.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 10 * MAX_REPLY))
    assert len(call("GET", server.url, headers={}, body=b"", timeout=5).body) == MAX_REPLY


@pytest.mark.parametrize(
    "body", [b"Content-Length: 2\r\n\r\n{}", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"]
)
def test_a_request_is_sent_unchanged(raw_server: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login other password other")
    monkeypatch.setenv("NETRC", str(netrc))
    server = raw_server(lambda c: c.sendall(b"HTTP/1.1 200 OK\r\nRetry-After: 7\r\n" + body))
    reply = call("POST", f"{server.url}/a?b=c", headers={"Authorization": "Bearer t"}, body=b"x", timeout=5)
    assert (reply.status, reply.body, reply.retry_after()) == (200, b"{}", 7)
    (request,) = server.requests
    assert request.startswith(b"POST /a?b=c HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer t\r\n" in request
    assert b"\r\nAccept-Encoding: identity\r\n" in request
    assert request.endswith(b"\r\n\r\nx")


def test_redirects_are_not_followed(raw_server: Start) -> None:
    server = raw_server(lambda c: c.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/x\r\nContent-Length: 0\r\n\r\n"))
    with pytest.raises(ProviderRejected, match="redirects are not followed"):
        accepted(call("POST", server.url, headers={}, body=b"x", timeout=5), "p", MESSAGE)
    assert len(server.requests) == 1


def test_a_provider_that_does_not_speak_http_is_a_connection_error(raw_server: Start) -> None:
    server = raw_server(lambda c: c.sendall(b"SSH-2.0-OpenSSH\r\n"))
    with pytest.raises(requests.ConnectionError, match=r"^127\.0\.0\.1:\d+: ConnectionError$"):
        call("GET", server.url, headers={}, body=b"", timeout=5)


def test_an_unknown_host_is_retryable_and_its_path_stays_secret() -> None:
    with pytest.raises(requests.ConnectionError) as caught:
        call("GET", "http://no-such-host.invalid/secret-path?key=secret", headers={}, body=b"", timeout=5)
    assert str(caught.value).startswith("no-such-host.invalid: ")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["gateway/send?key=secret", "http:///x?key=secret", "http://h:99999999/?key=secret"])
def test_an_invalid_url_is_a_final_error_and_not_shown(url: str) -> None:
    with pytest.raises(ValueError, match=r"^(?!.*secret)") as caught:
        call("GET", url, headers={}, body=b"", timeout=5)
    assert not isinstance(caught.value, ConnectionError)


def retry_after(value: str) -> float | None:
    return Reply(503, {"Retry-After": value}, b"").retry_after()


def test_retry_after_in_seconds_and_as_a_date() -> None:
    assert retry_after("120") == 120
    later = retry_after(format_datetime(datetime.now(timezone.utc) + timedelta(seconds=90), usegmt=True))
    assert later is not None and 80 < later <= 90
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert Reply(503, {}, b"").retry_after() is None
    assert retry_after("9" * 5000) is None
    assert retry_after("soon") is None


def test_a_proxy_of_the_environment_is_used(raw_server: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = raw_server(lambda c: c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"))
    monkeypatch.setenv("http_proxy", proxy.url.replace("://", "://user:p%40ss@"))
    assert call("POST", "http://sms.example.com/send?a=1", headers={}, body=b"x", timeout=5).status == 200
    (request,) = proxy.requests
    assert request.startswith(b"POST http://sms.example.com/send?a=1 HTTP/1.1\r\n")
    assert b"\r\nHost: sms.example.com\r\n" in request
    assert b"\r\nProxy-Authorization: Basic dXNlcjpwQHNz\r\n" in request


def test_a_proxy_is_asked_for_a_tunnel_and_loopback_needs_none(raw_server: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = raw_server(lambda c: c.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n"))
    direct = raw_server(lambda c: c.sendall(b"HTTP/1.1 204 No Content\r\n\r\n"))
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, proxy.url)
    with pytest.raises(requests.exceptions.ProxyError, match=r"^fcm\.example\.com: "):
        call("POST", "https://fcm.example.com/v1", headers={}, body=b"x", timeout=5)
    assert proxy.requests[0].startswith(b"CONNECT fcm.example.com:443 HTTP/1.")
    assert call("GET", direct.url, headers={}, body=b"", timeout=5).status == 204
    assert len(proxy.requests) == 1


def test_https_needs_a_certificate_that_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for _ in range(2):
                connection, _address = listener.accept()
                try:
                    with context.wrap_socket(connection, server_side=True) as secure:
                        secure.recv(65536)
                        secure.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                except (ssl.SSLError, OSError):
                    connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"https://localhost:{listener.getsockname()[1]}/"
        with pytest.raises(ProviderRejected, match=r"certificate not trusted .* SSL_CERT_FILE"):
            call("GET", url, headers={}, body=b"", timeout=5)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        tls_context.cache_clear()
        assert call("GET", url, headers={}, body=b"", timeout=5).status == 200
        thread.join(10)
