"""WhatsApp Cloud API: `POST /<version>/<phone number id>/messages`, text and templates."""

from __future__ import annotations

from typing import Any

from . import settings
from .base import Message, Provider, ProviderUnavailable, Receipt, public_reason
from .reply import accepted, json_body
from .transport import call

#: Graph codes that mean "too much, later" but may come with status 400: app, account, throughput and pair rate limits.
_RATE_LIMITS = frozenset({4, 80007, 130429, 131056})


def whatsapp_provider() -> Provider:
    """The one FUSION_WHATSAPP_PROVIDER names."""
    version = settings.get("WHATSAPP_VERSION", "v23.0")
    if settings.one_of("WHATSAPP_PROVIDER", ("sandbox", "cloud"), "sandbox") == "sandbox":
        return CloudApi(settings.sandbox_url(""), version, "100000000000001", settings.SANDBOX_TOKEN, name="sandbox")
    return CloudApi(
        settings.get("WHATSAPP_URL", "https://graph.facebook.com").rstrip("/"),
        version,
        settings.need("WHATSAPP_PHONE_ID", "id of the sending phone number"),
        settings.need("WHATSAPP_TOKEN", "access token of the WhatsApp business account"),
    )


class CloudApi:
    """Free text reaches only people who wrote in the last 24 hours; everyone else needs a template. That is WhatsApp's rule."""

    def __init__(self, base: str, version: str, phone_id: str, token: str, *, name: str = "cloud") -> None:
        self.name = name
        self._url = f"{base}/{version}/{phone_id}/messages"
        self._token = token

    def send(self, message: Message, timeout: float) -> Receipt:
        """Hand the message over; see `Provider.send`."""
        body: dict[str, Any] = {"messaging_product": "whatsapp", "recipient_type": "individual", "to": message.to[0].lstrip("+")}
        if "template" in message.content:
            body |= {"type": "template", "template": message.content["template"]}
        else:
            body |= {"type": "text", "text": {"preview_url": False, "body": message.text}}
        if message.job_id:
            body["biz_opaque_callback_data"] = message.job_id
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._token}", **message.trace}
        reply = call("POST", self._url, headers=headers, body=json_body(body), timeout=timeout)
        error = reply.json().get("error")
        if isinstance(error, dict) and error.get("code") in _RATE_LIMITS:
            reason = public_reason(str(error.get("message", "")), message, (self._token,))
            raise ProviderUnavailable(f"{self.name}: rate limit: {reason}", reply.retry_after())
        sent = accepted(reply, self.name, message, (self._token,)).json().get("messages")
        first: dict[str, Any] = sent[0] if isinstance(sent, list) and sent and isinstance(sent[0], dict) else {}
        return Receipt(self.name, first.get("id"), message.masked, str(first.get("message_status") or "accepted"))
