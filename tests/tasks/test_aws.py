"""SNS and SES. boto3 is optional and large, so most tests inject a small client; with botocore installed its Stubber checks the shapes."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.email import sendEmail
from tasks.providers import aws
from tasks.providers.aws import SesEmail, SnsSms
from tasks.providers.base import Message, ProviderNotConfigured, ProviderRejected, ProviderUnavailable
from tasks.sms import sendSMS

SMS = Message(
    ("+9992015551234",), "+99***34", "the secret words", {"from": None}, {"X-Fusion-Job": "job-1", "X-Fusion-Priority": "2"}
)
MAIL_CONTENT = {
    "to": ("a@example.com",),
    "cc": (),
    "bcc": ("b@example.com",),
    "subject": "Grüße",
    "html": "<b>x</b>",
    "reply_to": "r@example.com",
}
MAIL = Message(("a@example.com", "b@example.com"), "a***@example.com", "x", MAIL_CONTENT, {"X-Fusion-Job": "job-1"})


class Client:
    """Has the one method that is called, and remembers how."""

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self.answer = answer
        self.calls: list[dict[str, Any]] = []

    def publish(self, **request: Any) -> dict[str, Any]:
        self.calls.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    send_email = publish


class ClientError(Exception):
    """Shaped like botocore's."""

    def __init__(self, code: str, status: int) -> None:
        super().__init__(code)
        self.response = {
            "Error": {"Code": code, "Message": "no: the secret words to +9992015551234"},
            "ResponseMetadata": {"HTTPStatusCode": status},
        }


def test_sns_publishes_to_a_number() -> None:
    client = Client({"MessageId": "m-1"})
    receipt = SnsSms(sender="Shop", client=client).send(SMS, 5)
    assert (receipt.provider, receipt.message_id, receipt.recipient) == ("sns", "m-1", "+99***34")
    (call,) = client.calls
    assert (call["PhoneNumber"], call["Message"]) == ("+9992015551234", "the secret words")
    assert call["MessageAttributes"]["AWS.SNS.SMS.SMSType"]["StringValue"] == "Transactional"
    assert call["MessageAttributes"]["AWS.SNS.SMS.SenderID"]["StringValue"] == "Shop"


def test_campaigns_are_promotional_unless_configured() -> None:
    bulk = Message(SMS.to, SMS.masked, SMS.text, trace={"X-Fusion-Priority": "0"})
    for configured, expected in (("", "Promotional"), ("Transactional", "Transactional")):
        client = Client({})
        SnsSms(sms_type=configured, client=client).send(bulk, 5)
        assert client.calls[0]["MessageAttributes"]["AWS.SNS.SMS.SMSType"]["StringValue"] == expected


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("InvalidParameter", 400, ProviderRejected),
        ("AuthorizationError", 403, ProviderRejected),
        ("Throttling", 400, ProviderUnavailable),
        ("TooManyRequestsException", 429, ProviderUnavailable),
        ("InternalError", 500, ProviderUnavailable),
    ],
)
def test_awss_errors_are_sorted_and_say_nothing_they_should_not(code: str, status: int, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        SnsSms(client=Client(ClientError(code, status))).send(SMS, 5)
    assert str(caught.value) == f"sns: {code}: no: [text] to +99***34"


def test_network_errors_of_botocore_are_retryable_and_bugs_are_not_hidden() -> None:
    lost = type("EndpointConnectionError", (Exception,), {"__module__": "botocore.exceptions"})()
    with pytest.raises(ProviderUnavailable, match="EndpointConnectionError"):
        SnsSms(client=Client(lost)).send(SMS, 5)
    with pytest.raises(KeyError):
        SnsSms(client=Client(KeyError("x"))).send(SMS, 5)


def test_ses_sends_simple_content() -> None:
    client = Client({"MessageId": "m-2"})
    assert SesEmail(sender="shop@example.com", client=client).send(MAIL, 5).message_id == "m-2"
    (call,) = client.calls
    assert call["FromEmailAddress"] == "shop@example.com"
    assert call["Destination"] == {"ToAddresses": ["a@example.com"], "BccAddresses": ["b@example.com"]}
    assert call["ReplyToAddresses"] == ["r@example.com"]
    simple = call["Content"]["Simple"]
    assert simple["Subject"] == {"Data": "Grüße", "Charset": "UTF-8"}
    assert {kind: part["Data"] for kind, part in simple["Body"].items()} == {"Text": "x", "Html": "<b>x</b>"}
    assert simple["Headers"] == [{"Name": "X-Fusion-Job", "Value": "job-1"}]


def test_without_boto3_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws, "boto3", None)
    monkeypatch.setenv("FUSION_SMS_PROVIDER", "sns")
    with pytest.raises(ProviderNotConfigured, match=r"^FUSION_SMS_PROVIDER=sns needs boto3: pip install boto3$"):
        sendSMS({"to": "+9992015551234", "text": "x"})
    monkeypatch.setenv("FUSION_EMAIL_PROVIDER", "ses")
    monkeypatch.setenv("FUSION_EMAIL_FROM", "shop@example.com")
    with pytest.raises(ProviderNotConfigured, match=r"^FUSION_EMAIL_PROVIDER=ses needs boto3: pip install boto3$"):
        sendEmail({"to": "a@example.com", "subject": "s", "text": "x"})
    monkeypatch.setenv("FUSION_SNS_SMS_TYPE", "Loud")
    with pytest.raises(ProviderNotConfigured, match="FUSION_SNS_SMS_TYPE"):
        sendSMS({"to": "+9992015551234", "text": "x"})


def test_the_shapes_are_botocores(monkeypatch: pytest.MonkeyPatch) -> None:
    boto3 = pytest.importorskip("boto3")
    from botocore.stub import ANY, Stubber

    for name, value in {"AWS_DEFAULT_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}.items():
        monkeypatch.setenv(name, value)
    sns, ses = boto3.client("sns"), boto3.client("sesv2")
    with Stubber(sns) as stub:
        stub.add_response("publish", {"MessageId": "m-1"}, {"PhoneNumber": ANY, "Message": ANY, "MessageAttributes": ANY})
        assert SnsSms(client=sns).send(SMS, 5).message_id == "m-1"
        stub.add_client_error("publish", "InvalidParameter", "bad", 400)
        with pytest.raises(ProviderRejected, match="InvalidParameter"):
            SnsSms(client=sns).send(SMS, 5)
    with Stubber(ses) as stub:
        stub.add_response("send_email", {"MessageId": "m-2"})
        assert SesEmail(sender="shop@example.com", client=ses).send(MAIL, 5).message_id == "m-2"


def test_a_real_client_that_reaches_nobody(monkeypatch: pytest.MonkeyPatch, closed_port: int) -> None:
    pytest.importorskip("boto3")
    monkeypatch.setenv("FUSION_SMS_PROVIDER", "sns")
    for name, value in {"AWS_DEFAULT_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{closed_port}")
    with pytest.raises(ProviderUnavailable, match="EndpointConnectionError"):
        sendSMS({"to": "+9992015551234", "text": "x"})
