"""E-mail."""

from __future__ import annotations

from typing import Any

from . import payload as reading
from .providers.base import InvalidPayload, Message
from .providers.settings import warm
from .providers.smtp import compose, email_provider

#: Above this, use one job per recipient: one refusal or retry then concerns one person.
MAX_RECIPIENTS = 50


def sendEmail(payload: dict[str, Any]) -> dict[str, Any]:
    """Send `{"to": address or [addresses], "subject": "...", "text" and/or "html"}`.

    Also known: `from`, `reply_to`, `cc`, `bcc`, `headers`, `timeout` (seconds). Raises as `tasks.sms.sendSMS` does. If a server
    refuses only some of the recipients the mail is sent, and the receipt's status says `partial`: a retry would reach the others
    twice.
    """
    fields = reading.check(payload, "sendEmail")
    to = _addresses(fields.get("to"), needed=True)
    cc, bcc = _addresses(fields.get("cc")), _addresses(fields.get("bcc"))
    everyone = tuple(dict.fromkeys(to + cc + bcc))
    if len(everyone) > MAX_RECIPIENTS:
        raise InvalidPayload(f"sendEmail: {len(everyone)} recipients in one mail, at most {MAX_RECIPIENTS}: enqueue one job each")
    html = reading.option(fields, "html", str, "sendEmail")
    text = reading.option(fields, "text", str, "sendEmail") if html else reading.text_of(fields, "text", "sendEmail")
    headers = reading.option(fields, "headers", dict, "sendEmail") or {}
    reply_to = fields.get("reply_to")
    message = Message(
        to=everyone,
        masked=reading.mask_email(everyone[0]) + (f" and {len(everyone) - 1} more" if len(everyone) > 1 else ""),
        text=text or "",
        content={
            "to": to,
            "cc": cc,
            "bcc": bcc,
            "subject": reading.text_of(fields, "subject", "sendEmail"),
            "html": html,
            "from": reading.option(fields, "from", str, "sendEmail"),
            "reply_to": reading.email_address(reply_to, "sendEmail") if reply_to else None,
            "headers": {str(name): str(value) for name, value in headers.items()},
        },
        trace=reading.trace(),
    )
    return email_provider().send(message, reading.timeout_of(fields, "email")).as_dict()


def _addresses(value: object, needed: bool = False) -> tuple[str, ...]:
    if not value and not needed:
        return ()
    several = value if isinstance(value, (list, tuple)) and value else [value]
    return tuple(reading.email_address(item, "sendEmail") for item in several)


warm("email")
# The email package compiles its patterns at first use: 5 ms in every job, unless a mail was composed before the fork.
compose(Message(("a@b.example",), "", "text", {"to": ["a@b.example"], "subject": "s", "html": "h"}), "a@b.example").as_bytes()
