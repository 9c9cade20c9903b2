"""The relevant parts of an endpoint's answer: status, Retry-After and the beginning of the text."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timezone
from email.utils import parsedate_to_datetime
from urllib.parse import unquote

#: Characters of an answer that are kept for display.
EXCERPT = 512
#: Longest time in seconds for which an endpoint can put a delivery off.
MAX_RETRY_AFTER = 24 * 3600.0
_SECONDS = re.compile(r"[0-9]{1,12}")
_BREAKS = re.compile(r"[\s/?&=;,]+")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer. `retry_after`: seconds, None if there was none. `excerpt`: one line, without the secrets that were sent."""

    status: int
    retry_after: float | None = None
    excerpt: str = field(default="", repr=False)


def parse_retry_after(text: str | None, now: float | None = None) -> float | None:
    """Read a Retry-After header, a number or an HTTP date (RFC 9110 10.2.3). Return 0 s to 24 h, or None for anything else."""
    if not text:
        return None
    text = text.strip()
    if _SECONDS.fullmatch(text):
        return min(float(text), MAX_RETRY_AFTER)
    try:
        moment = parsedate_to_datetime(text)
        at = (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return min(max(0.0, at - (time.time() if now is None else now)), MAX_RETRY_AFTER)


def excerpt(body: bytes, secrets: Iterable[str]) -> str:
    """Return the beginning of a text as one line for a log. Each of `secrets`, or a part of one, that a receiver sent back becomes
    `***`."""
    text = body.decode("utf-8", "replace")
    words = {
        part for secret in secrets for part in (secret, *_BREAKS.split(secret), *_BREAKS.split(unquote(secret))) if len(part) >= 8
    }
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, "***")
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:EXCERPT]
