"""The sandbox is as strict as what it stands for, and tells the truth about what it got."""

from __future__ import annotations

import http.client
import json
import os
import signal
import smtplib
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tasks.sandbox import Sandbox
from tests.kit.waiting import eventually
from tests.tasks.conftest import ROOT

AUTH = {"Authorization": "Bearer sandbox", "Content-Type": "application/json"}
SMS = {"to": "+9992015551234", "text": "x"}
FCM = "/v1/projects/shop-1/messages:send"
WHATSAPP = "/v23.0/123/messages"


def ask(sandbox: Sandbox, method: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", sandbox.port, timeout=10)
    raw = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
    connection.request(method, path, raw, AUTH if headers is None else headers)
    response = connection.getresponse()
    status, answer = response.status, json.loads(response.read())
    connection.close()
    return status, answer


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/sms/messages", {**SMS, "to": "999201"}, 400, "E.164"),
        ("/sms/messages", {"to": SMS["to"]}, 400, "'text'"),
        ("/sms/messages", {**SMS, "text": "x" * 1601}, 400, "1600"),
        ("/sms/messages", {**SMS, "colour": "red"}, 400, "colour"),
        ("/sms/messages", b"{", 400, "Invalid JSON"),
        ("/sms/messages", [], 400, "JSON object"),
        ("/sms/messages", {**SMS, "to": "+9992015550000"}, 400, "subscriber"),
        (FCM, {"token": "x" * 20}, 400, 'Unknown name "token"'),
        (FCM, {}, 400, "message"),
        (FCM, {"message": {"notification": {"body": "x"}}}, 400, "Exactly one"),
        (FCM, {"message": {"token": "short"}}, 400, "registration token"),
        (FCM, {"message": {"token": "x" * 20, "data": {"n": 1}}}, 400, "must be strings"),
        (FCM, {"message": {"token": "x" * 20, "notification": {"text": "x"}}}, 400, 'Unknown name "text"'),
        (FCM, {"message": {"token": "x" * 20 + "0000"}}, 404, "not found"),
        (WHATSAPP, {"to": "9992015551234", "type": "text", "text": {"body": "x"}}, 400, "messaging_product"),
        (WHATSAPP, {"messaging_product": "whatsapp", "to": "x", "type": "text", "text": {"body": "x"}}, 400, "to"),
        (WHATSAPP, {"messaging_product": "whatsapp", "to": "9992015551234", "type": "text", "text": {}}, 400, "body"),
        (WHATSAPP, {"messaging_product": "whatsapp", "to": "9992015551234", "type": "poem"}, 400, "type"),
        ("/webhook/nowhere", {}, 400, "percent-encoded"),
        ("/webhook/https%3A%2F%2Fexample.com", b"{", 400, "not JSON"),
        ("/nowhere", {}, 404, "Nothing at /nowhere"),
    ],
)
def test_wrong_shapes_are_refused_in_the_providers_words(
    sandbox: Sandbox, path: str, body: object, status: int, words: str
) -> None:
    answer = ask(sandbox, "POST", path, body)
    assert answer[0] == status
    assert words in answer[1]["error"]["message"]
    assert sandbox.stats()["total"] == 0


@pytest.mark.parametrize("path", ["/sms/messages", FCM, WHATSAPP])
def test_a_token_and_the_right_method_are_needed(sandbox: Sandbox, path: str) -> None:
    assert ask(sandbox, "POST", path, SMS, {"Content-Type": "application/json"})[0] == 401
    assert ask(sandbox, "GET", path)[0] == 405


def test_the_control_addresses(sandbox: Sandbox) -> None:
    trace = {**AUTH, "X-Fusion-Job": "j1", "X-Fusion-Priority": "0"}
    for _ in range(3):
        assert ask(sandbox, "POST", "/sms/messages", SMS, trace)[0] == 202
    _, page = ask(sandbox, "GET", "/_deliveries?since=1")
    assert [one["n"] for one in page["deliveries"]] == [2, 3]
    assert ask(sandbox, "GET", f"/_deliveries?since={page['next']}")[1] == {"next": 3, "deliveries": []}
    _, stats = ask(sandbox, "GET", "/_stats")
    assert (stats["by_channel"]["sms"], stats["by_priority"], stats["jobs"], stats["duplicates"]) == (3, {"0": 3}, 1, 2)
    assert ask(sandbox, "POST", "/_faults", {"channel": "*", "status": 503})[0] == 200
    assert ask(sandbox, "POST", "/sms/messages", SMS)[0] == 503
    assert ask(sandbox, "DELETE", "/_faults")[0] == 200
    assert ask(sandbox, "POST", "/sms/messages", SMS)[0] == 202
    assert ask(sandbox, "DELETE", "/_deliveries")[0] == 200
    assert sandbox.stats()["total"] == 0


@pytest.mark.parametrize(
    "wish",
    [
        {},
        {"channel": "fax"},
        {"channel": "sms", "status": 200},
        {"channel": "email", "status": 503},
        {"channel": "sms", "count": 0},
        {"channel": "sms", "delay": -1},
        {"channel": "sms", "colour": "red"},
    ],
)
def test_a_fault_it_does_not_understand_is_refused(sandbox: Sandbox, wish: dict[str, Any]) -> None:
    assert ask(sandbox, "POST", "/_faults", wish)[0] == 400
    assert ask(sandbox, "POST", "/sms/messages", SMS)[0] == 202


def raw(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
        return received


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 40_000, 431),
    ],
)
def test_broken_http_is_answered_and_closed(sandbox: Sandbox, data: bytes, status: int) -> None:
    assert raw(sandbox.port, data).startswith(b"HTTP/1.1 %d " % status)


def test_requests_in_a_row_on_one_connection(sandbox: Sandbox) -> None:
    sandbox.fault("webhook", delay=0.1, count=1)
    one = b"POST /webhook/http%3A%2F%2Fexample.com HTTP/1.1\r\nContent-Length: 1\r\n\r\nx"
    assert raw(sandbox.port, one + one + b"GET /_stats HTTP/1.1\r\nConnection: close\r\n\r\n").count(b"HTTP/1.1 200 OK") == 3
    assert sandbox.stats()["by_channel"]["webhook"] == 2


def test_the_smtp_dialogue(sandbox: Sandbox) -> None:
    server = smtplib.SMTP("127.0.0.1", sandbox.smtp_port, "client.example.com", timeout=10)
    assert server.docmd("MAIL", "FROM:<a@example.com>")[0] == 503
    assert server.docmd("EHLO")[0] == 501
    assert server.helo()[0] == 250
    assert server.ehlo()[0] == 250
    assert server.has_extn("smtputf8")
    assert not server.has_extn("starttls")
    assert [server.docmd(verb)[0] for verb in ("NOOP", "HELP", "VRFY x", "STARTTLS", "TURN")] == [250, 214, 252, 502, 502]
    assert server.docmd("RCPT", "TO:<b@example.com>")[0] == 503
    assert server.docmd("MAIL", "FROM:a@example.com")[0] == 501
    assert server.docmd("MAIL", f"FROM:<a@example.com> SIZE={10**9}")[0] == 552
    assert server.docmd("MAIL", "FROM:<a@example.com> SIZE=10")[0] == 250
    assert server.docmd("MAIL", "FROM:<a@example.com>")[0] == 503
    assert server.docmd("DATA")[0] == 503
    assert server.docmd("RCPT", "TO:<nobody>")[0] == 501
    assert server.docmd("RCPT", "TO:<unknown@example.com>")[0] == 550
    assert server.docmd("RSET")[0] == 250
    assert server.docmd("RCPT", "TO:<b@example.com>")[0] == 503
    assert server.docmd("MAIL", "FROM:<>")[0] == 250
    assert server.docmd("RCPT", "TO:<b@example.com>")[0] == 250
    assert server.docmd("DATA")[0] == 354
    server.send(b".Subject: dots\r\nX-Fusion-Job: j9\r\n\r\n..\r\n.\r\n")  # a leading dot is not part of the text
    assert server.getreply()[0] == 250
    assert server.quit()[0] == 221
    (delivery,) = sandbox.deliveries()
    assert (delivery["to"], delivery["text"], delivery["job"]) == ("b@example.com", "dots", "j9")


def test_it_runs_as_a_process_of_its_own(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    command = [sys.executable, "-m", "tasks.sandbox", "--port", "0", "--smtp-port", "0", "--ready-file", str(ready)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        eventually(ready.exists, timeout=30)
        said = json.loads(ready.read_text())
        assert said["pid"] == process.pid
        host, port = said["url"].removeprefix("http://").split(":")
        assert host == "127.0.0.1"
        connection = http.client.HTTPConnection(host, int(port), timeout=10)
        connection.request("GET", "/_stats")
        assert json.loads(connection.getresponse().read())["total"] == 0
        smtplib.SMTP(*said["smtp"].split(":"), local_hostname="x", timeout=10).quit()
        taken = subprocess.run([*command[:4], port], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
        assert taken.returncode == 1
        assert "choose another --port" in taken.stderr
    finally:
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert output.splitlines() == [f"{name}={value}" for name, value in said["env"].items()]


def test_it_can_be_started_again_and_does_not_answer_after_stop() -> None:
    sandbox = Sandbox()
    with sandbox:
        assert sandbox.stats()["total"] == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", sandbox.port), timeout=5)
    with pytest.raises(RuntimeError, match="start"):
        sandbox.stats()
    with sandbox:
        assert ask(sandbox, "GET", "/_stats")[0] == 200


def test_loopback_only(sandbox: Sandbox) -> None:
    listening = (
        subprocess.run(["ss", "-ltn"], capture_output=True, text=True, check=True).stdout if os.path.exists("/usr/bin/ss") else ""
    )
    for port in (sandbox.port, sandbox.smtp_port):
        with socket.socket() as other:
            other.bind(("127.0.0.2", port))  # free, since only 127.0.0.1 is taken
        assert f"0.0.0.0:{port}" not in listening
