"""How a webhook is called besides its URL: method, headers, time. They stand behind the URL's `#`, which no request sends, so what is stored,
signed, vouched for and masked is one text."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field

MARK = "#webhook="


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """`headers` may hold secrets. `timeout`: seconds for one try; None: the courier's own."""

    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: int | None = None


def with_request(url: str, request: WebhookRequest) -> str:
    """Return the URL with its request; as it is for a POST with nothing else."""
    if request == WebhookRequest():
        return url
    text = json.dumps([request.method, dict(request.headers), request.timeout], separators=(",", ":"))
    return url + MARK + urlsafe_b64encode(text.encode()).decode()


def split_request(text: str) -> tuple[str, WebhookRequest]:
    """Return the URL and the request. ValueError if the request can't be read; the message does not show it."""
    url, mark, rest = text.rpartition(MARK)
    if not mark:
        return text, WebhookRequest()
    try:
        method, headers, timeout = json.loads(urlsafe_b64decode(rest))
        if method not in ("GET", "POST") or not all(isinstance(one, str) for pair in headers.items() for one in pair):
            raise ValueError
        if timeout is not None and (type(timeout) is not int or timeout <= 0):
            raise ValueError
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise ValueError(
            "what stands behind its `#webhook=` is not a webhook's method, headers and timeout: leave it out"
        ) from None
    return url, WebhookRequest(method, headers, timeout)
