"""Calls to other people's HTTP endpoints."""

from __future__ import annotations

import re
from typing import Any

from . import payload as reading
from .providers.base import InvalidPayload, Message
from .providers.settings import warm
from .providers.webhook import webhook_provider

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: What belongs to the connection and would break the request.
_NOT_YOURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "accept-encoding"})


def sendWebhook(payload: dict[str, Any]) -> dict[str, Any]:
    """Call `{"url": "https://...", "method"?: "POST", "headers"?: {...}, "json"?: anything or "text"?: "...", "timeout"?: 15}`.

    `to` may stand for `url`, `data` for `json`. Any 2xx is success; redirects are not followed. Raises as `tasks.sms.sendSMS`
    does.
    """
    fields = reading.check(payload, "sendWebhook")
    url = reading.web_url(fields.get("url") or fields.get("to"), "sendWebhook")
    method = reading.option(fields, "method", str, "sendWebhook") or "POST"
    if not _TOKEN.fullmatch(method) or method.upper() == "CONNECT":
        raise InvalidPayload("sendWebhook: 'method' is not an HTTP method")
    content: dict[str, Any] = {"method": method.upper(), "headers": _headers(fields.get("headers"))}
    text = reading.option(fields, "text", str, "sendWebhook") or ""
    for key in ("data", "json"):
        if key in fields:
            content["json"] = fields[key]
    if text and "json" in content:
        raise InvalidPayload("sendWebhook: payload has both 'text' and 'json'; the call has one body")
    message = Message(to=(url,), masked=reading.mask_url(url), text=text, content=content, trace=reading.trace())
    return webhook_provider().send(message, reading.timeout_of(fields, "webhook")).as_dict()


def _headers(headers: object) -> dict[str, str]:
    if headers is None:
        return {}
    if not isinstance(headers, dict):
        raise InvalidPayload("sendWebhook: 'headers' must be a dict")
    checked: dict[str, str] = {}
    for name, value in headers.items():
        name, value = str(name), str(value)
        if not _TOKEN.fullmatch(name) or name.lower() in _NOT_YOURS or name.lower().startswith("x-fusion-"):
            raise InvalidPayload(f"sendWebhook: header {name!r:.60} can't be set by a payload")
        if not value.isprintable() or not all(ord(character) < 256 for character in value):
            raise InvalidPayload(f"sendWebhook: the value of header {name!r} has characters that HTTP does not allow")
        checked[name] = value
    return checked


warm("webhook")
