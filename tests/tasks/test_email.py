"""E-mail over real SMTP dialogues."""

from __future__ import annotations

import email
import ssl
import time
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
import trustme

from tasks.email import sendEmail
from tasks.providers.base import (
    InvalidPayload,
    InvalidRecipient,
    Message,
    ProviderNotConfigured,
    ProviderRejected,
    ProviderUnavailable,
)
from tasks.providers.settings import get
from tasks.providers.smtp import compose
from tasks.providers.transport import tls_context
from tasks.sandbox import Sandbox

MAIL = {"to": "anna@example.com", "subject": "Grüße", "text": "Hallo Anna"}


def test_a_mail_arrives(sandbox: Sandbox) -> None:
    receipt = sendEmail(MAIL)
    assert (receipt["provider"], receipt["recipient"], receipt["status"]) == ("sandbox", "a***@example.com", "accepted")
    (delivery,) = sandbox.deliveries()
    assert (delivery["channel"], delivery["to"], delivery["text"]) == ("email", "anna@example.com", "Grüße")


@pytest.mark.usefixtures("in_job")
def test_the_job_is_named_in_the_headers_and_in_the_message_id(sandbox: Sandbox) -> None:
    assert sendEmail(MAIL)["message_id"] == "<job-1@example.com>"
    assert sendEmail(MAIL)["message_id"] == "<job-1@example.com>"
    assert [(one["job"], one["priority"]) for one in sandbox.deliveries()] == [("job-1", 2)] * 2
    assert sandbox.stats()["duplicates"] == 1


def test_everyone_gets_it_once_and_bcc_is_not_in_the_mail(sandbox: Sandbox) -> None:
    sendEmail(
        {**MAIL, "to": ["a@example.com", "b@example.com"], "cc": "c@example.com", "bcc": ["d@example.com", "a@example.com"]}
    )
    assert [one["to"] for one in sandbox.deliveries()] == [f"{name}@example.com" for name in "abcd"]


def composed(**content: Any) -> EmailMessage:
    message = Message(("a@example.com",), "", content.pop("text", ""), {"to": ["a@example.com"], "subject": "s", **content})
    return email.message_from_bytes(compose(message, "Shop <shop@example.com>").as_bytes(), policy=default)


def test_what_a_mail_looks_like() -> None:
    mail = composed(
        text="Grüße", html="<b>Grüße</b>", cc=["c@example.com"], reply_to="r@example.com", headers={"List-Id": "x"}, bcc=["d@e.f"]
    )
    assert [part.get_content_type() for part in mail.iter_parts()] == ["text/plain", "text/html"]
    assert [part.get_content().strip() for part in mail.iter_parts()] == ["Grüße", "<b>Grüße</b>"]
    headers = ("From", "To", "Cc", "Reply-To", "List-Id", "Bcc")
    expected = ["Shop <shop@example.com>", "a@example.com", "c@example.com", "r@example.com", "x", None]
    assert [mail[name] for name in headers] == expected
    assert mail["Date"] is not None
    assert composed(html="<i>x</i>").get_content_type() == "text/html"


@pytest.mark.parametrize("content", [{"subject": "a\nBcc: x@example.com"}, {"headers": {"Subject": "two"}}, {"from": "nobody"}])
def test_headers_can_not_be_smuggled_in(content: dict[str, Any]) -> None:
    with pytest.raises(InvalidPayload, match="header"):
        composed(**content)


@pytest.mark.parametrize(
    "to", [None, "", [], "anna", "anna@", "@example.com", "a b@example.com", "a@b@c.de", "Anna <a@b.de>", 5, ["a@b.de", ""]]
)
def test_no_mail_is_sent_to_an_invalid_address(sandbox: Sandbox, to: object) -> None:
    with pytest.raises(InvalidRecipient, match="sendEmail"):
        sendEmail({**MAIL, "to": to})
    assert sandbox.stats()["total"] == 0


@pytest.mark.parametrize(
    "change", [{"text": ""}, {"subject": None}, {"html": 5}, {"headers": []}, {"to": [f"a{i}@b.de" for i in range(51)]}]
)
def test_a_payload_without_its_parts_is_refused(sandbox: Sandbox, change: dict[str, Any]) -> None:
    with pytest.raises(InvalidPayload):
        sendEmail({**MAIL, **change})


def test_a_refused_recipient_is_final(sandbox: Sandbox) -> None:
    with pytest.raises(ProviderRejected, match="SMTP 550") as caught:
        sendEmail({**MAIL, "to": "unknown.anna@example.com"})
    assert "unknown.anna" not in str(caught.value)
    assert sandbox.stats()["refused"] == {"email": {"550": 1}}


def test_one_refused_of_several_does_not_send_the_others_twice(sandbox: Sandbox) -> None:
    assert sendEmail({**MAIL, "to": ["unknown@example.com", "b@example.com"]})["status"] == "partial: 1 of 2 refused"
    assert [one["to"] for one in sandbox.deliveries()] == ["b@example.com"]


@pytest.mark.parametrize(("status", "error"), [(451, ProviderUnavailable), (421, ProviderUnavailable), (554, ProviderRejected)])
def test_the_servers_codes_decide_about_a_retry(sandbox: Sandbox, status: int, error: type[Exception]) -> None:
    sandbox.fault("email", status=status, count=1)
    with pytest.raises(error, match=f"SMTP {status}"):
        sendEmail(MAIL)
    sendEmail(MAIL)
    assert sandbox.stats()["total"] == 1


def test_a_lost_connection_is_retryable(sandbox: Sandbox, closed_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox.fault("email", drop=True, count=1)
    with pytest.raises(ProviderUnavailable, match="SMTPServerDisconnected"):
        sendEmail(MAIL)
    monkeypatch.setenv("FUSION_SANDBOX_SMTP", f"127.0.0.1:{closed_port}")
    with pytest.raises(ProviderUnavailable, match="refused"):
        sendEmail(MAIL)


def test_the_payloads_timeout_is_honoured(sandbox: Sandbox) -> None:
    sandbox.fault("email", delay=20, count=1)
    begin = time.monotonic()
    with pytest.raises(ProviderUnavailable):
        sendEmail({**MAIL, "timeout": 0.2})
    assert time.monotonic() - begin < 5


def use_smtp(monkeypatch: pytest.MonkeyPatch, port: int, **more: str) -> None:
    values = {
        "EMAIL_PROVIDER": "smtp",
        "EMAIL_FROM": "shop@example.com",
        "SMTP_HOST": "localhost",
        "SMTP_PORT": str(port),
        **more,
    }
    for name, value in values.items():
        monkeypatch.setenv(f"FUSION_{name}", value)


def test_starttls_and_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with Sandbox(smtp_tls=context, smtp_login=("shop", "pass-word")) as server:
        use_smtp(monkeypatch, server.smtp_port, SMTP_USER="shop", SMTP_PASSWORD="pass-word")
        tls_context.cache_clear()
        with pytest.raises(ProviderRejected, match="certificate not trusted"):
            sendEmail(MAIL)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        tls_context.cache_clear()
        assert sendEmail(MAIL)["provider"] == "smtp"
        monkeypatch.setenv("FUSION_SMTP_PASSWORD", "wrong-word")
        with pytest.raises(ProviderRejected, match="SMTP 535") as caught:
            sendEmail(MAIL)
        assert "wrong-word" not in str(caught.value)
        monkeypatch.delenv("FUSION_SMTP_USER")
        with pytest.raises(ProviderRejected, match="SMTP 530"):
            sendEmail(MAIL)
        assert server.stats()["total"] == 1
    tls_context.cache_clear()


def test_no_starttls_means_no_mail_in_clear(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    use_smtp(monkeypatch, sandbox.smtp_port)
    with pytest.raises(ProviderNotConfigured, match="FUSION_SMTP_SECURITY"):
        sendEmail(MAIL)
    monkeypatch.setenv("FUSION_SMTP_SECURITY", "none")
    assert sendEmail(MAIL)["status"] == "accepted"


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"SMTP_SECURITY": "none", "SMTP_USER": "u"}, "in clear"),
        ({"SMTP_PORT": "smtp"}, "FUSION_SMTP_PORT"),
        ({"SMTP_HOST": ""}, "FUSION_SMTP_HOST"),
        ({"EMAIL_FROM": ""}, "FUSION_EMAIL_FROM"),
        ({"EMAIL_PROVIDER": "pigeon"}, "sandbox, smtp, ses"),
        ({"EMAIL_PROVIDER": "sandbox", "SANDBOX_SMTP": "here"}, "FUSION_SANDBOX_SMTP"),
    ],
)
def test_a_wrong_provider_setting_is_named(monkeypatch: pytest.MonkeyPatch, more: dict[str, str], named: str) -> None:
    use_smtp(monkeypatch, 25, **more)
    with pytest.raises(ProviderNotConfigured, match=named):
        sendEmail(MAIL)


@pytest.mark.parametrize("value", ["tcp://10.0.0.1:25", "udp://10.0.0.1:25"])
def test_a_port_that_kubernetes_sets_is_none_of_ours(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("FUSION_SMTP_PORT", value)
    assert get("SMTP_PORT", "0") == "0"
    assert get("SMTP_HOST", "h") == "h"
