"""WhatsApp messages."""

from __future__ import annotations

from typing import Any

from . import payload as reading
from .providers.base import InvalidPayload, Message
from .providers.settings import warm
from .providers.whatsapp import whatsapp_provider


def sendWhatsapp(payload: dict[str, Any]) -> dict[str, Any]:
    """Send `{"to": "+4915...", "text": "..."}` or `{"to": "+4915...", "template": "order_shipped", "parameters": ["Ada"]}`.

    `template` is a name, with `parameters` for its body and `language` (default en_US), or the whole template object as the Cloud
    API has it. `timeout` in seconds. Raises as `tasks.sms.sendSMS` does.
    """
    fields = reading.check(payload, "sendWhatsapp")
    number = reading.phone(fields.get("to"), "sendWhatsapp")
    template = fields.get("template")
    if template and fields.get("text"):
        raise InvalidPayload("sendWhatsapp: payload has both 'text' and 'template'; a message has one of them")
    content = {"template": _template(template, fields.get("language"), fields.get("parameters"))} if template else {}
    message = Message(
        to=(number,),
        masked=reading.mask_phone(number),
        text="" if template else reading.text_of(fields, "text", "sendWhatsapp"),
        content=content,
        trace=reading.trace(),
    )
    return whatsapp_provider().send(message, reading.timeout_of(fields, "whatsapp")).as_dict()


def _template(template: object, language: object, parameters: object) -> dict[str, Any]:
    if isinstance(template, dict):
        return template
    if not isinstance(template, str) or not isinstance(parameters or [], (list, tuple)):
        raise InvalidPayload("sendWhatsapp: 'template' must be a name or a dict, and 'parameters' a list")
    whole: dict[str, Any] = {"name": template, "language": {"code": language or "en_US"}}
    values = parameters if isinstance(parameters, (list, tuple)) else ()
    if values:
        whole["components"] = [{"type": "body", "parameters": [{"type": "text", "text": str(value)} for value in values]}]
    return whole


warm("whatsapp")
