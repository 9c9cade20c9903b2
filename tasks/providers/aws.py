"""SMS by Amazon SNS and e-mail by Amazon SES (v2). boto3 is optional; it is imported with this module, so in the fork server."""

from __future__ import annotations

from typing import Any

from .base import Message, ProviderNotConfigured, ProviderRejected, ProviderUnavailable, Receipt, public_reason

try:
    import boto3  # type: ignore[import-not-found,import-untyped,unused-ignore]
except ImportError:
    boto3 = None

#: Error codes that mean "not now" though their HTTP status is 400.
_LATER = ("Throttl", "TooManyRequests", "RequestLimitExceeded", "LimitExceeded", "ServiceUnavailable", "InternalError")


class SnsSms:
    """`Publish` to a phone number. `client` is a boto3 SNS client; one is made per send if it is left out."""

    name = "sns"

    def __init__(self, *, sender: str = "", sms_type: str = "", client: Any = None) -> None:
        if sms_type not in ("", "Transactional", "Promotional"):
            raise ProviderNotConfigured(f"FUSION_SNS_SMS_TYPE is {sms_type!r}; use Transactional or Promotional")
        self._sender = sender
        self._type = sms_type
        self._client = client

    def send(self, message: Message, timeout: float) -> Receipt:
        """Hand the message over; see `Provider.send`."""
        bulk = message.trace.get("X-Fusion-Priority") == "0"
        attributes = {"AWS.SNS.SMS.SMSType": _text(self._type or ("Promotional" if bulk else "Transactional"))}
        sender = message.content.get("from") or self._sender
        if sender:
            attributes["AWS.SNS.SMS.SenderID"] = _text(sender)
        client = self._client or _client("sns", "FUSION_SMS_PROVIDER=sns", timeout)
        answer = _call(
            client.publish, self.name, message, PhoneNumber=message.to[0], Message=message.text, MessageAttributes=attributes
        )
        return Receipt(self.name, answer.get("MessageId"), message.masked, "accepted")


class SesEmail:
    """SESv2 `SendEmail` with simple content. `client` is a boto3 sesv2 client; one is made per send if it is left out."""

    name = "ses"

    def __init__(self, *, sender: str, client: Any = None) -> None:
        self._sender = sender
        self._client = client

    def send(self, message: Message, timeout: float) -> Receipt:
        """Hand the message over; see `Provider.send`."""
        content = message.content
        body = {"Text": _utf8(message.text)} if message.text else {}
        if content.get("html"):
            body["Html"] = _utf8(content["html"])
        headers = [{"Name": name, "Value": value} for name, value in {**content.get("headers", {}), **message.trace}.items()]
        simple = {"Subject": _utf8(content["subject"]), "Body": body, **({"Headers": headers} if headers else {})}
        hidden = {"CcAddresses": list(content.get("cc", ())), "BccAddresses": list(content.get("bcc", ()))}
        request: dict[str, Any] = {
            "FromEmailAddress": content.get("from") or self._sender,
            "Destination": {"ToAddresses": list(content["to"]), **{key: value for key, value in hidden.items() if value}},
            "Content": {"Simple": simple},
        }
        if content.get("reply_to"):
            request["ReplyToAddresses"] = [content["reply_to"]]
        client = self._client or _client("sesv2", "FUSION_EMAIL_PROVIDER=ses", timeout)
        answer = _call(client.send_email, self.name, message, **request)
        return Receipt(self.name, answer.get("MessageId"), message.masked, "accepted")


def _client(service: str, wanted_by: str, timeout: float) -> Any:
    if boto3 is None:
        raise ProviderNotConfigured(f"{wanted_by} needs boto3: pip install boto3")
    from botocore.config import Config  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from botocore.exceptions import BotoCoreError  # type: ignore[import-not-found,import-untyped,unused-ignore]

    # Fusion retries; botocore's own retries would hide the failure and stretch the timeout.
    config = Config(connect_timeout=timeout, read_timeout=timeout, retries={"total_max_attempts": 1})
    try:
        return boto3.client(service, config=config)
    except BotoCoreError as error:  # no region
        raise ProviderNotConfigured(f"{wanted_by}: {error}") from None


def _call(method: Any, provider: str, message: Message, **request: Any) -> dict[str, Any]:
    """Call boto3 and sort its errors, recognised by shape: botocore need not be there to handle an injected client."""
    try:
        answer: dict[str, Any] = method(**request)
        return answer
    except Exception as error:
        response = getattr(error, "response", None)
        if isinstance(response, dict):  # ClientError: AWS answered
            detail = response.get("Error", {})
            code, status = str(detail.get("Code", "")), response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            text = f"{provider}: {code}: {public_reason(str(detail.get('Message', '')), message)}"
            if status >= 500 or status == 429 or any(word in code for word in _LATER):
                raise ProviderUnavailable(text) from None
            raise ProviderRejected(text) from None
        kind = type(error).__name__
        if kind in ("ParamValidationError", "NoCredentialsError", "PartialCredentialsError", "NoRegionError"):
            raise ProviderNotConfigured(f"{provider}: {kind}: {public_reason(str(error), message)}") from None
        if type(error).__module__.startswith("botocore.") or isinstance(error, (ConnectionError, TimeoutError)):
            raise ProviderUnavailable(f"{provider}: {kind}") from None
        raise


def _text(value: str) -> dict[str, str]:
    return {"DataType": "String", "StringValue": value}


def _utf8(value: str) -> dict[str, str]:
    return {"Data": value, "Charset": "UTF-8"}
