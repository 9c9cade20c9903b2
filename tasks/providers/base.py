"""The messages, receipts and errors between a channel's task and a provider."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

#: Characters of a provider's own words that reach an error message.
MAX_REASON = 200


class InvalidPayload(ValueError):
    """The payload can't be sent as it is; trying again does not help."""


class InvalidRecipient(InvalidPayload):
    """The recipient is missing or is not an address of this channel."""


class ProviderNotConfigured(RuntimeError):
    """A FUSION_* variable or an optional library is missing or wrong; the message names it."""


class ProviderRejected(Exception):
    """The provider understood and refused (HTTP 4xx, SMTP 5xx); trying again does not help."""


class ProviderUnavailable(ConnectionError):
    """The provider can't be reached, is overloaded or failing (HTTP 429 and 5xx, SMTP 4xx). Retried by Fusion's default policy.

    `retry_after` is the provider's own wish in seconds, or None.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Message:
    """One message, checked by the channel's task: `to` is never empty and its addresses are well-formed."""

    to: tuple[str, ...]
    #: The recipient as it may be shown in results and errors.
    masked: str
    text: str = ""
    #: What else the channel knows: subject, template, method, ...
    content: Mapping[str, Any] = field(default_factory=dict)
    #: `X-Fusion-*` headers, so that the other side can tell a repeated delivery; empty outside a job.
    trace: Mapping[str, str] = field(default_factory=dict)

    @property
    def job_id(self) -> str:
        """Id of the running job, out of the headers; empty outside a job."""
        return self.trace.get("X-Fusion-Job", "")


@dataclass(frozen=True, slots=True)
class Receipt:
    """The provider's answer when it took the message. `message_id` is None if it gave none."""

    provider: str
    message_id: str | None
    recipient: str
    status: str

    def as_dict(self) -> dict[str, Any]:
        """The receipt as a task returns it."""
        return {"provider": self.provider, "message_id": self.message_id, "recipient": self.recipient, "status": self.status}


class Provider(Protocol):
    """Hands one message over. Opens its connection in `send`, which makes it fork-safe.

    Raises one of the errors above or what the network did: requests' ConnectTimeout, ReadTimeout and ConnectionError, or the
    builtin TimeoutError. All of these are retried. After a wait for an answer the message may have been taken: it may arrive twice.
    """

    def send(self, message: Message, timeout: float) -> Receipt:
        """`timeout` is seconds for each step of the dialogue: connecting, and every wait for an answer."""


def public_reason(reason: str, message: Message, secrets: Sequence[str] = ()) -> str:
    """The provider's words without what must not reach a log: credentials, recipients, and the message itself.

    Providers like to quote what they refuse.
    """
    # Longest first: a short string inside a longer one would leave the rest of it readable.
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        reason = reason.replace(secret, "***")
    for address in message.to:
        reason = reason.replace(address, message.masked).replace(address.lstrip("+"), message.masked)
    for text in sorted(_strings((message.text, message.content)), key=len, reverse=True):
        if len(text) >= 4:
            reason = reason.replace(text, "[text]")
    reason = re.sub(r"\d{5,}(?=\d\d)", "*****", reason)
    reason = re.sub(r"\s+", " ", "".join(c if c.isprintable() else " " for c in reason)).strip()
    return reason if len(reason) <= MAX_REASON else reason[: MAX_REASON - 1] + "\u2026"


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)
