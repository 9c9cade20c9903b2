"""SMS through an HTTP gateway, by JSON or by form. The sandbox is such a gateway."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from . import settings
from .base import Message, Provider, ProviderNotConfigured, Receipt
from .reply import accepted, json_body
from .transport import call

_FIELDS = "to=to,text=text,from=from,reference=reference"
#: Where gateways put the id of a message they took.
_ID_KEYS = ("message_id", "messageId", "message-id", "sid", "id")


def sms_provider() -> Provider:
    """The one FUSION_SMS_PROVIDER names."""
    chosen = settings.one_of("SMS_PROVIDER", ("sandbox", "http", "sns"), "sandbox")
    if chosen == "sandbox":
        return HttpSms(settings.sandbox_url("/sms/messages"), name="sandbox", token=settings.SANDBOX_TOKEN)
    if chosen == "http":
        return HttpSms(
            settings.need("SMS_URL", "the address of the SMS gateway"),
            token=settings.get("SMS_TOKEN"),
            user=settings.get("SMS_USER"),
            password=settings.get("SMS_PASSWORD"),
            sender=settings.get("SMS_FROM"),
            form=settings.one_of("SMS_FORMAT", ("json", "form"), "json") == "form",
            fields=_parse_fields(settings.get("SMS_FIELDS", _FIELDS)),
        )
    from .aws import SnsSms

    return SnsSms(sender=settings.get("SMS_FROM"), sms_type=settings.get("SNS_SMS_TYPE"))


class HttpSms:
    """POSTs one message per call. `reference` is the job's id, which many gateways use to drop repetitions."""

    def __init__(
        self,
        url: str,
        *,
        name: str = "http",
        token: str = "",
        user: str = "",
        password: str = "",
        sender: str = "",
        form: bool = False,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._url = url
        self._secrets = (token, password)
        basic = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}" if user else ""
        self._auth = f"Bearer {token}" if token else basic
        self._sender = sender
        self._form = form
        self._fields = _parse_fields(_FIELDS) if fields is None else fields

    def send(self, message: Message, timeout: float) -> Receipt:
        """Hand the message over; see `Provider.send`."""
        values = {
            "to": message.to[0],
            "text": message.text,
            "from": message.content.get("from") or self._sender,
            "reference": message.job_id,
        }
        fields = {self._fields[key]: value for key, value in values.items() if value and key in self._fields}
        headers = {"Content-Type": "application/x-www-form-urlencoded" if self._form else "application/json", **message.trace}
        if self._auth:
            headers["Authorization"] = self._auth
        body = urlencode(fields).encode() if self._form else json_body(fields)
        reply = accepted(
            call("POST", self._url, headers=headers, body=body, timeout=timeout), self.name, message, (*self._secrets, self._auth)
        )
        data = reply.json()
        return Receipt(self.name, _message_id(data), message.masked, str(data.get("status") or "accepted")[:40])


def _message_id(data: Mapping[str, Any]) -> str | None:
    for key in _ID_KEYS:
        if data.get(key):
            return str(data[key])[:128]
    return None


def _parse_fields(text: str) -> dict[str, str]:
    pairs = [pair.strip().partition("=") for pair in text.split(",") if pair.strip()]
    fields = {ours.strip(): theirs.strip() for ours, _, theirs in pairs}
    if not {"to", "text"} <= fields.keys() <= {"to", "text", "from", "reference"} or not all(fields.values()):
        raise ProviderNotConfigured(f"FUSION_SMS_FIELDS must look like {_FIELDS}, with at least to and text")
    return fields
