"""Push notifications, webhooks and WhatsApp against the sandbox."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from tasks.pn import sendPN
from tasks.providers import google_token
from tasks.providers.base import (
    InvalidPayload,
    InvalidRecipient,
    ProviderNotConfigured,
    ProviderRejected,
    ProviderUnavailable,
)
from tasks.sandbox import Sandbox
from tasks.webhook import sendWebhook
from tasks.whatsapp import sendWhatsapp
from tests.tasks.conftest import RawServer

TOKEN = "dQw4w9WgXcQ:APA91bH-example_token"
HOOK = "https://hooks.example.com/t0ken/path?key=1"
NUMBER = "+9992025551234"
Start = Callable[[Callable[[socket.socket], None]], RawServer]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


# -- push


def test_a_notification_arrives(sandbox: Sandbox) -> None:
    receipt = sendPN(
        {"to": TOKEN, "title": "Hi", "text": "News", "data": {"order": 7, "tags": ["a"]}, "android": {"priority": "high"}}
    )
    assert receipt["message_id"] == "projects/sandbox/messages/0:00000000000000000001"
    assert receipt["recipient"] == "dQw4***oken"
    sendPN({"to": "/topics/news", "text": "x"})
    assert [one["to"] for one in sandbox.deliveries()] == [TOKEN, "news"]


def test_an_unregistered_device_is_final(sandbox: Sandbox) -> None:
    with pytest.raises(ProviderRejected, match=r"HTTP 404: NOT_FOUND Requested entity was not found\. UNREGISTERED"):
        sendPN({"to": "device-token-of-0000", "text": "x"})


@pytest.mark.parametrize("to", [None, "", "short", "has blanks in its middle", "/topics/", 5])
def test_no_message_is_sent_to_an_invalid_device(sandbox: Sandbox, to: object) -> None:
    with pytest.raises(InvalidRecipient, match="sendPN"):
        sendPN({"to": to, "text": "x"})
    assert sandbox.stats()["total"] == 0


@pytest.mark.parametrize("payload", [{}, {"text": 5}, {"data": []}, {"data": {"x": {1, 2}}}])
def test_a_notification_needs_something_to_say(sandbox: Sandbox, payload: dict[str, Any]) -> None:
    with pytest.raises(InvalidPayload):
        sendPN({"to": TOKEN, **payload})


def test_fcm_with_a_ready_token(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"PN_PROVIDER": "fcm", "FCM_PROJECT": "shop-1", "FCM_TOKEN": "sandbox", "FCM_URL": sandbox.url}
    for name, value in values.items():
        monkeypatch.setenv(f"FUSION_{name}", value)
    assert sendPN({"to": TOKEN, "text": "x"})["message_id"].startswith("projects/shop-1/messages/")
    monkeypatch.setenv("FUSION_FCM_TOKEN", "ya29.expired")
    with pytest.raises(ProviderRejected, match="HTTP 401: UNAUTHENTICATED") as caught:
        sendPN({"to": TOKEN, "text": "x"})
    assert "ya29" not in str(caught.value)


def test_fcm_without_google_auth_names_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(google_token, "service_account", None)
    monkeypatch.setenv("FUSION_PN_PROVIDER", "fcm")
    with pytest.raises(ProviderNotConfigured, match="FUSION_FCM_CREDENTIALS"):
        sendPN({"to": TOKEN, "text": "x"})
    monkeypatch.setenv("FUSION_FCM_CREDENTIALS", str(tmp_path / "key.json"))
    with pytest.raises(ProviderNotConfigured, match="pip install google-auth"):
        sendPN({"to": TOKEN, "text": "x"})


def test_fcm_with_a_service_account(
    sandbox: Sandbox, raw_server: Start, closed_port: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("google.oauth2.service_account")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    pem = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    body = b'{"access_token": "sandbox", "expires_in": 3600, "token_type": "Bearer"}'
    google = raw_server(
        lambda c: c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    )
    account = {
        "type": "service_account",
        "project_id": "shop-2",
        "client_email": "a@shop-2.example",
        "token_uri": f"{google.url}/token",
    }
    key, cache = tmp_path / "key.json", tmp_path / "token.json"
    key.write_text(json.dumps({**account, "private_key_id": "1", "private_key": pem.decode()}))
    for name, value in {"PN_PROVIDER": "fcm", "FCM_CREDENTIALS": key, "FCM_URL": sandbox.url, "FCM_TOKEN_CACHE": cache}.items():
        monkeypatch.setenv(f"FUSION_{name}", str(value))
    for _ in range(2):
        assert sendPN({"to": TOKEN, "text": "x"})["message_id"].startswith("projects/shop-2/messages/")
    assert len(google.requests) == 1
    assert os.stat(cache).st_mode & 0o777 == 0o600
    cache.write_text(json.dumps({"account": "a@shop-2.example", "token": "old", "expires": time.time() + 60}))
    sendPN({"to": TOKEN, "text": "x"})
    assert len(google.requests) == 2
    cache.unlink()
    no = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 25\r\n\r\n" + b'{"error":"invalid_grant"}'
    signed = {**account, "private_key_id": "1", "private_key": pem.decode()}
    key.write_text(json.dumps({**signed, "token_uri": raw_server(lambda c: c.sendall(no)).url}))
    with pytest.raises(ProviderNotConfigured, match=r"Google refused the service account: .*invalid_grant"):
        sendPN({"to": TOKEN, "text": "x"})
    key.write_text(json.dumps({**signed, "token_uri": f"http://127.0.0.1:{closed_port}/token"}))
    with pytest.raises(ProviderUnavailable, match="no access token from Google: ConnectionError"):
        sendPN({"to": TOKEN, "text": "x"})
    key.write_text("{}")
    with pytest.raises(ProviderNotConfigured, match="not a service account"):
        sendPN({"to": TOKEN, "text": "x"})


# -- webhooks


@pytest.mark.usefixtures("in_job")
def test_a_webhook_stays_on_this_machine_by_default(sandbox: Sandbox) -> None:
    receipt = sendWebhook({"url": HOOK, "json": {"order": 7}})
    assert (receipt["recipient"], receipt["status"]) == ("https://hooks.example.com/***", "200")
    (delivery,) = sandbox.deliveries()
    assert (delivery["to"], delivery["text"], delivery["job"]) == (HOOK, '{"order":7}', "job-1")


def test_any_method_headers_and_body(raw_server: Start, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    server = raw_server(lambda c: c.sendall(OK))
    monkeypatch.setenv("FUSION_WEBHOOK_PROVIDER", "http")
    sendWebhook(
        {"to": f"{server.url}/a?b=c", "method": "put", "headers": {"content-type": "text/csv", "X-Key": "k"}, "text": "1;2"}
    )
    sendWebhook({"url": server.url, "method": "DELETE"})
    put, delete = server.requests
    assert put.startswith(b"PUT /a?b=c HTTP/1.1\r\n")
    assert put.endswith(b"\r\n\r\n1;2")
    assert put.lower().count(b"content-type:") == 1
    assert b"\r\ncontent-type: text/csv\r\n" in put
    assert b"\r\nX-Key: k\r\n" in put
    assert delete.startswith(b"DELETE / HTTP/1.1\r\n")


def test_a_webhook_waits_15_seconds_unless_told_otherwise(sandbox: Sandbox) -> None:
    from tasks.payload import timeout_of

    assert timeout_of({}, "webhook") == 15
    sandbox.fault("webhook", delay=20, count=1)
    with pytest.raises(requests.ReadTimeout, match=r"0\.2 s"):
        sendWebhook({"url": HOOK, "timeout": 0.2})


def test_the_others_verdict(sandbox: Sandbox) -> None:
    with pytest.raises(ProviderRejected, match="HTTP 410: gone"):
        sendWebhook({"url": "https://hooks.example.com/old/gone"})
    sandbox.fault("webhook", status=503, count=1)
    with pytest.raises(ProviderUnavailable, match="HTTP 503"):
        sendWebhook({"url": HOOK})


@pytest.mark.parametrize(
    "url",
    [
        None,
        "",
        "hooks.example.com",
        "ftp://example.com/",
        "http://",
        "http://a b/",
        "http://h:x/",
        "https://u:p@h/",
        "http://h/ü",
        5,
    ],
)
def test_no_request_is_made_to_an_invalid_url(sandbox: Sandbox, url: object) -> None:
    with pytest.raises(InvalidRecipient, match="sendWebhook"):
        sendWebhook({"url": url})
    assert sandbox.stats()["total"] == 0


@pytest.mark.parametrize(
    "more",
    [
        {"method": "GET / HTTP/1.1\r\nX: y"},
        {"method": "CONNECT"},
        {"headers": {"X-A": "1\r\nX-B: 2"}},
        {"headers": {"X A": "1"}},
        {"headers": {"Content-Length": "1"}},
        {"headers": {"X-Fusion-Job": "other"}},
        {"headers": []},
        {"text": "a", "json": {}},
    ],
)
def test_a_payload_can_not_break_the_request(sandbox: Sandbox, more: dict[str, Any]) -> None:
    with pytest.raises(InvalidPayload):
        sendWebhook({"url": HOOK, **more})
    assert sandbox.stats()["total"] == 0


# -- WhatsApp


def test_text_and_template_arrive(sandbox: Sandbox) -> None:
    assert sendWhatsapp({"to": NUMBER, "text": "Hallo"})["message_id"] == f"wamid.{1:024d}"
    sendWhatsapp({"to": NUMBER, "template": "order_shipped", "language": "de", "parameters": ["Anna", 7]})
    sendWhatsapp({"to": NUMBER, "template": {"name": "hello_world", "language": {"code": "en_US"}}})
    assert [(one["to"], one["text"]) for one in sandbox.deliveries()] == [
        (NUMBER, "Hallo"),
        (NUMBER, "order_shipped"),
        (NUMBER, "hello_world"),
    ]


def test_an_unreachable_recipient_is_a_final_error(sandbox: Sandbox) -> None:
    with pytest.raises(ProviderRejected, match=r"HTTP 400: 131026 \(#131026\) Message undeliverable"):
        sendWhatsapp({"to": "+9992025550000", "text": "x"})
    with pytest.raises(ProviderRejected, match="132001"):
        sendWhatsapp({"to": NUMBER, "template": "No Such Template"})


def test_a_rate_limit_is_retryable_whatever_its_status(
    raw_server: Start, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = b'{"error": {"message": "(#131056) Pair rate limit hit", "code": 131056}}'
    server = raw_server(lambda c: c.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n" % len(body) + body))
    values = {"PROVIDER": "cloud", "PHONE_ID": "123", "TOKEN": "EAAsecret", "URL": server.url}
    for name, value in values.items():
        monkeypatch.setenv(f"FUSION_WHATSAPP_{name}", value)
    with pytest.raises(ProviderUnavailable, match="Pair rate limit"):
        sendWhatsapp({"to": NUMBER, "text": "x"})
    assert server.requests[0].startswith(b"POST /v23.0/123/messages HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer EAAsecret\r\n" in server.requests[0]


@pytest.mark.parametrize("more", [{}, {"text": "a", "template": "b"}, {"template": 5}, {"template": "a", "parameters": "b"}])
def test_a_message_has_text_or_template(sandbox: Sandbox, more: dict[str, Any]) -> None:
    with pytest.raises(InvalidPayload, match="sendWhatsapp"):
        sendWhatsapp({"to": NUMBER, **more})


def test_a_number_is_needed(sandbox: Sandbox) -> None:
    with pytest.raises(InvalidRecipient, match="sendWhatsapp"):
        sendWhatsapp({"to": "12", "text": "x"})
