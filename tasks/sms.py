"""Text messages."""

from __future__ import annotations

from typing import Any

from . import payload as reading
from .providers.base import Message
from .providers.settings import warm
from .providers.sms import sms_provider


def sendSMS(payload: dict[str, Any]) -> dict[str, Any]:
    """Send `{"to": "+4915...", "text": "...", "from"?: "...", "timeout"?: seconds}`; returns the receipt.

    Raises InvalidPayload, InvalidRecipient, ProviderRejected or ProviderNotConfigured (final); ProviderUnavailable, or
    requests' ConnectTimeout, ReadTimeout or ConnectionError (retried by default). Other keys are left alone.
    """
    fields = reading.check(payload, "sendSMS")
    number = reading.phone(fields.get("to"), "sendSMS")
    message = Message(
        to=(number,),
        masked=reading.mask_phone(number),
        text=reading.text_of(fields, "text", "sendSMS"),
        content={"from": reading.option(fields, "from", str, "sendSMS")},
        trace=reading.trace(),
    )
    return sms_provider().send(message, reading.timeout_of(fields, "sms")).as_dict()


warm("sms")
