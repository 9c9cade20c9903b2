"""Webhooks: any method, any headers, JSON or text."""

from __future__ import annotations

from urllib.parse import quote

from . import settings
from .base import Message, Provider, Receipt
from .reply import accepted, json_body
from .transport import call


def webhook_provider() -> Provider:
    """The one FUSION_WEBHOOK_PROVIDER names."""
    if settings.one_of("WEBHOOK_PROVIDER", ("sandbox", "http"), "sandbox") == "sandbox":
        return HttpWebhook(name="sandbox", through=settings.sandbox_url("/webhook/"))
    return HttpWebhook()


class HttpWebhook:
    """Calls the payload's url; with `through`, an address in front that receives in its place (the sandbox)."""

    def __init__(self, *, name: str = "http", through: str = "") -> None:
        self.name = name
        self._through = through

    def send(self, message: Message, timeout: float) -> Receipt:
        """Hand the message over; see `Provider.send`."""
        url = message.to[0]
        if "json" in message.content:
            body, kind = json_body(message.content["json"]), "application/json"
        else:
            body, kind = message.text.encode(), "text/plain; charset=utf-8"
        own: dict[str, str] = message.content.get("headers", {})
        headers = {"User-Agent": "fusion-webhook", **({"Content-Type": kind} if body else {})}
        # A header given twice in different case would be sent twice.
        headers = {name: value for name, value in headers.items() if name.lower() not in {key.lower() for key in own}}
        headers = {**headers, **own, **message.trace}
        target = self._through + quote(url, safe="") if self._through else url
        reply = call(message.content.get("method", "POST"), target, headers=headers, body=body, timeout=timeout)
        accepted(reply, self.name, message, tuple(own.values()))
        return Receipt(self.name, reply.headers.get("x-request-id"), message.masked, str(reply.status))
