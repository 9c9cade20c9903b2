"""SMS, and what all HTTP channels share: recipients, timeouts, faults, what errors may say."""

from __future__ import annotations

import socket
import sys
import time
from base64 import b64decode
from collections.abc import Callable

import pytest
import requests

from fusion.retry import RETRYABLE
from tasks.email import sendEmail
from tasks.providers.base import (
    InvalidPayload,
    InvalidRecipient,
    ProviderNotConfigured,
    ProviderRejected,
    ProviderUnavailable,
)
from tasks.sandbox import Sandbox
from tasks.sms import sendSMS
from tests.tasks.conftest import RawServer

TO = "+9992015551234"
Start = Callable[[Callable[[socket.socket], None]], RawServer]


def test_a_message_arrives_and_the_receipt_hides_the_number(sandbox: Sandbox) -> None:
    receipt = sendSMS({"to": TO, "text": "Ihre Bestätigung: 4711"})
    assert receipt == {"provider": "sandbox", "message_id": "sms-00000001", "recipient": "+99*********34", "status": "queued"}
    (delivery,) = sandbox.deliveries()
    assert (delivery["channel"], delivery["to"], delivery["text"]) == ("sms", TO, "Ihre Bestätigung: 4711")


def test_people_may_write_numbers_as_they_do(sandbox: Sandbox) -> None:
    sendSMS({"to": "+999 (201) 555-12.34", "text": "x"})
    assert sandbox.deliveries()[0]["to"] == TO


def test_keys_for_others_are_left_alone(sandbox: Sandbox) -> None:
    payload = {
        "to": TO,
        "text": "x",
        "callback": 1,
        "callback_url": "https://example.com/cb",
        "failed_task_handler": "https://example.com/f",
    }
    assert sendSMS(payload)["status"] == "queued"


@pytest.mark.usefixtures("in_job")
def test_the_job_is_named_so_that_a_repetition_is_seen(sandbox: Sandbox) -> None:
    sendSMS({"to": TO, "text": "x"})
    sendSMS({"to": TO, "text": "x"})
    first, second = sandbox.deliveries()
    assert (first["job"], first["priority"]) == (second["job"], second["priority"]) == ("job-1", 2)
    stats = sandbox.stats()
    assert (stats["total"], stats["jobs"], stats["duplicates"]) == (2, 1, 1)
    assert stats["by_channel_and_priority"] == {"sms": {"2": 2}}


@pytest.mark.parametrize(
    "to",
    [None, "", "4915112345678", "+0123456789", "+12345", "+1234567890123456", "+49151abc678", 4915112345678, ["+4915112345678"]],
)
def test_no_message_is_sent_to_an_invalid_number(sandbox: Sandbox, to: object) -> None:
    with pytest.raises(InvalidRecipient, match="sendSMS"):
        sendSMS({"to": to, "text": "x"})
    assert sandbox.stats()["total"] == 0


@pytest.mark.parametrize(
    "payload", [{"to": TO}, {"to": TO, "text": " "}, {"to": TO, "text": 5}, {"to": TO, "text": "x", "from": 7}, [], "x"]
)
def test_a_payload_without_its_parts_is_refused(sandbox: Sandbox, payload: object) -> None:
    with pytest.raises(InvalidPayload):
        sendSMS(payload)  # type: ignore[arg-type]
    assert sandbox.stats()["total"] == 0


def test_an_unknown_subscriber_is_final_and_named_without_number_or_text(sandbox: Sandbox) -> None:
    with pytest.raises(ProviderRejected) as caught:
        sendSMS({"to": "+9992015550000", "text": "the secret words"})
    assert str(caught.value) == "sandbox: HTTP 400: unknown_subscriber +99*********00 is not a subscriber of any network"
    assert sandbox.stats()["refused"] == {"sms": {"400": 1}}


def test_the_error_leaves_out_what_the_provider_echoes(
    raw_server: Start, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = b'{"message": "bad: Your code is 991827 to +9992015551234 / 9992015551234 with key tok-1234\\n\\u001b[31m"}'
    server = raw_server(lambda c: c.sendall(b"HTTP/1.1 422 No\r\nContent-Length: %d\r\n\r\n" % len(body) + body))
    monkeypatch.setenv("FUSION_SMS_PROVIDER", "http")
    monkeypatch.setenv("FUSION_SMS_URL", server.url)
    monkeypatch.setenv("FUSION_SMS_TOKEN", "tok-1234")
    with pytest.raises(ProviderRejected) as caught:
        sendSMS({"to": TO, "text": "Your code is 991827"})
    assert str(caught.value) == "http: HTTP 422: bad: [text] to +99*********34 / +99*********34 with key *** [31m"


@pytest.mark.parametrize("status", [429, 500, 503])
def test_overload_and_failure_of_the_provider_are_retryable(sandbox: Sandbox, status: int) -> None:
    sandbox.fault("sms", status=status, count=1, retry_after=7)
    with pytest.raises(ProviderUnavailable, match=f"HTTP {status}") as caught:
        sendSMS({"to": TO, "text": "x"})
    assert caught.value.retry_after == 7
    assert isinstance(caught.value, ConnectionError)
    sendSMS({"to": TO, "text": "x"})
    assert sandbox.stats()["total"] == 1


def test_final_errors_are_none_that_the_default_policy_retries() -> None:
    for final in (InvalidPayload, InvalidRecipient, ProviderRejected, ProviderNotConfigured, requests.exceptions.InvalidURL):
        assert not any(f"{kind.__module__}.{kind.__qualname__}" in RETRYABLE for kind in final.__mro__)
    for passing in (requests.ConnectTimeout, requests.ReadTimeout, requests.ConnectionError, ProviderUnavailable, TimeoutError):
        assert any(f"{kind.__module__}.{kind.__qualname__}" in RETRYABLE for kind in passing.__mro__)


def test_the_payloads_timeout_goes_before_the_environments(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSION_SMS_TIMEOUT", "30")
    sandbox.fault("sms", delay=20, count=2)
    begin = time.monotonic()
    with pytest.raises(requests.ReadTimeout, match=r"no answer within 0\.2 s"):
        sendSMS({"to": TO, "text": "x", "timeout": 0.2})
    monkeypatch.setenv("FUSION_SMS_TIMEOUT", "0.1")
    with pytest.raises(requests.ReadTimeout, match=r"within 0\.1 s"):
        sendSMS({"to": TO, "text": "x"})
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize("timeout", [0, -1, "soon", float("nan"), float("inf"), True, [5]])
def test_a_timeout_that_is_none_is_refused(sandbox: Sandbox, timeout: object) -> None:
    with pytest.raises(InvalidPayload, match="timeout"):
        sendSMS({"to": TO, "text": "x", "timeout": timeout})


def test_a_timeout_in_the_environment_is_checked_too(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSION_SMS_TIMEOUT", "soon")
    with pytest.raises(ProviderNotConfigured, match="FUSION_SMS_TIMEOUT"):
        sendSMS({"to": TO, "text": "x"})


def test_nobody_listening_is_retryable(sandbox: Sandbox, closed_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSION_SANDBOX_URL", f"http://127.0.0.1:{closed_port}")
    with pytest.raises(requests.ConnectionError, match=f"^127.0.0.1:{closed_port}: Connection refused$"):
        sendSMS({"to": TO, "text": "x"})


@pytest.mark.skipif(sys.platform != "linux", reason="how a full backlog behaves differs")
def test_no_connection_in_time_is_a_connect_timeout(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        crowd = [socket.socket() for _ in range(4)]
        for one in crowd:
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        monkeypatch.setenv("FUSION_SANDBOX_URL", f"http://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(requests.ConnectTimeout, match=r"no connection within 0\.2 s"):
            sendSMS({"to": TO, "text": "x", "timeout": 0.2})
        monkeypatch.setenv("FUSION_SANDBOX_SMTP", f"127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(TimeoutError, match=r"no connection within 0\.2 s"):
            sendEmail({"to": "a@example.com", "subject": "s", "text": "x", "timeout": 0.2})
        for one in crowd:
            one.close()


def test_a_connection_cut_before_the_answer_is_retryable(sandbox: Sandbox) -> None:
    sandbox.fault("sms", drop=True, count=1)
    with pytest.raises(requests.ConnectionError, match=r"^127\.0\.0\.1:\d+: (Connection reset by peer|RemoteDisconnected)$"):
        sendSMS({"to": TO, "text": "x"})
    assert sandbox.stats()["total"] == 0


def test_a_gateway_by_form(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSION_SMS_PROVIDER", "http")
    monkeypatch.setenv("FUSION_SMS_URL", f"{sandbox.url}/sms/messages")
    monkeypatch.setenv("FUSION_SMS_FORMAT", "form")
    monkeypatch.setenv("FUSION_SMS_TOKEN", "sandbox")
    assert sendSMS({"to": TO, "text": "größer & mehr"})["provider"] == "http"
    assert sandbox.deliveries()[0]["text"] == "größer & mehr"
    monkeypatch.setenv("FUSION_SMS_TOKEN", "not-the-token")
    with pytest.raises(ProviderRejected, match="HTTP 401") as caught:
        sendSMS({"to": TO, "text": "x"})
    assert "not-the-token" not in str(caught.value)


def test_the_gateways_own_field_names_and_basic_auth(
    raw_server: Start, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = raw_server(
        lambda c: c.sendall(b'HTTP/1.1 201 Created\r\nContent-Length: 34\r\n\r\n{"sid": "SM1", "status": "queued"}')
    )
    values = {"PROVIDER": "http", "URL": f"{server.url}/2010-04-01/Accounts/AC1/Messages.json", "FORMAT": "form", "FROM": "Shop"}
    for name, value in {**values, "FIELDS": "to=To,text=Body,from=From", "USER": "AC1", "PASSWORD": "s3cret"}.items():
        monkeypatch.setenv(f"FUSION_SMS_{name}", value)
    assert sendSMS({"to": TO, "text": "hello"})["message_id"] == "SM1"
    (request,) = server.requests
    assert request.startswith(b"POST /2010-04-01/Accounts/AC1/Messages.json HTTP/1.1\r\n")
    assert request.endswith(b"\r\n\r\nTo=%2B9992015551234&Body=hello&From=Shop")
    (authorization,) = (line for line in request.split(b"\r\n") if line.startswith(b"Authorization: Basic "))
    assert b64decode(authorization.removeprefix(b"Authorization: Basic ")) == b"AC1:s3cret"


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"SMS_PROVIDER": "carrier-pigeon"}, "sandbox, http, sns"),
        ({"SMS_PROVIDER": "http"}, "FUSION_SMS_URL"),
        ({"SMS_PROVIDER": "http", "SMS_URL": "http://127.0.0.1:1", "SMS_FORMAT": "xml"}, "FUSION_SMS_FORMAT"),
        ({"SMS_PROVIDER": "http", "SMS_URL": "http://127.0.0.1:1", "SMS_FIELDS": "to=To"}, "FUSION_SMS_FIELDS"),
        ({"SMS_PROVIDER": "http", "SMS_URL": "http://127.0.0.1:1", "SMS_FIELDS": "to=,text=b"}, "FUSION_SMS_FIELDS"),
    ],
)
def test_a_wrong_provider_setting_is_named(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], named: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"FUSION_{name}", value)
    with pytest.raises(ProviderNotConfigured, match=named):
        sendSMS({"to": TO, "text": "x"})
