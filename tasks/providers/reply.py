"""A provider's HTTP answer, and its meaning: taken, refused, or not now."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from .base import Message, ProviderRejected, ProviderUnavailable, public_reason

#: 4xx that mean "not now" rather than "no".
_LATER = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one call; header names are found in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        """The body as an object, or {} if it is anything else."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    def retry_after(self) -> float | None:
        """Seconds from the Retry-After header, which has either seconds or a date."""
        try:
            return float(Retry().parse_retry_after(self.headers.get("Retry-After", "")))
        except (HTTPError, ValueError, OverflowError):
            return None


def accepted(reply: Reply, provider: str, message: Message, secrets: Sequence[str] = ()) -> Reply:
    """The reply if its status is 2xx; else ProviderUnavailable (408, 425, 429, 5xx) or ProviderRejected, with its reason."""
    if 200 <= reply.status < 300:
        return reply
    reason = public_reason(_reason(reply), message, secrets)
    text = f"{provider}: HTTP {reply.status}{': ' if reason else ''}{reason}"
    if reply.status >= 500 or reply.status in _LATER:
        raise ProviderUnavailable(text, reply.retry_after())
    raise ProviderRejected(f"{text} (redirects are not followed)" if reply.status // 100 == 3 else text)


def json_body(value: object) -> bytes:
    """Compact UTF-8 JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _reason(reply: Reply) -> str:
    """The provider's own words, in whichever of the usual places they are."""
    data = reply.json()
    error = data.get("error", data)
    if isinstance(error, str):
        return error
    if not isinstance(error, dict):
        return ""
    words = [error.get(key) for key in ("status", "code", "message", "detail", "title")]
    details = error.get("details") or error.get("error_data")
    for detail in details if isinstance(details, list) else [details]:
        if isinstance(detail, dict):
            words += [detail.get("errorCode"), detail.get("details")]
    return " ".join(str(word) for word in words if word and word != reply.status)
