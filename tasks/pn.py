"""Push notifications."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from . import payload as reading
from .providers.base import InvalidPayload, Message
from .providers.fcm import pn_provider
from .providers.settings import warm


def sendPN(payload: dict[str, Any]) -> dict[str, Any]:
    """Send `{"to": registration token or "/topics/<name>", "title": "...", "text": "...", "data": {...}}`.

    One of title, text and data is enough; `data` becomes text values, as FCM wants. `android`, `apns` and `webpush` are passed
    on; `timeout` in seconds. Raises as `tasks.sms.sendSMS` does.
    """
    fields = reading.check(payload, "sendPN")
    token = reading.device(fields.get("to"), "sendPN")
    text = reading.option(fields, "text", str, "sendPN")
    content: dict[str, Any] = {"title": reading.option(fields, "title", str, "sendPN")}
    content |= {key: reading.option(fields, key, dict, "sendPN") for key in ("data", "android", "apns", "webpush")}
    content["data"] = _texts(content["data"] or {})
    if not (text or content["title"] or content["data"]):
        raise InvalidPayload("sendPN: payload needs 'title', 'text' or 'data'")
    message = Message(to=(token,), masked=reading.mask_device(token), text=text or "", content=content, trace=reading.trace())
    return pn_provider().send(message, reading.timeout_of(fields, "pn")).as_dict()


def _texts(data: Mapping[Any, Any]) -> dict[str, str]:
    try:
        return {str(key): value if isinstance(value, str) else json.dumps(value) for key, value in data.items()}
    except (TypeError, ValueError):
        raise InvalidPayload("sendPN: 'data' has a value that is not JSON") from None


warm("pn")
