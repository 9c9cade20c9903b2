"""Reading a payload: recipients, text, timeout. Everything wrong with one raises InvalidPayload or InvalidRecipient."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from fusion import get_current_job
from fusion.kernel import defaults

from .providers.base import InvalidPayload, InvalidRecipient, ProviderNotConfigured

#: Seconds for one delivery, where neither payload nor environment says otherwise.
DEFAULT_TIMEOUT = 10.0

_E164 = re.compile(r"\+[1-9][0-9]{6,14}")
_EMAIL = re.compile(r"[^@\s<>()\[\],;:\\\"]+@[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_SEPARATORS = re.compile(r"[\s().-]")
_TOKEN = re.compile(r"[A-Za-z0-9_:.=-]{16,4096}|/topics/[A-Za-z0-9_.~%-]+")


def check(payload: object, task: str) -> Mapping[str, Any]:
    """The payload, if it is a mapping with text keys."""
    if not isinstance(payload, Mapping) or not all(isinstance(key, str) for key in payload):
        raise InvalidPayload(f"{task} takes one dict, for example {{'to': ...}}, not {type(payload).__name__}")
    return payload


def text_of(payload: Mapping[str, Any], key: str, task: str) -> str:
    """A text that must be there."""
    value = payload.get(key)
    if not isinstance(value, str) or not value.strip():
        raise InvalidPayload(f"{task}: payload needs a non-empty text under {key!r}")
    return value


def option(payload: Mapping[str, Any], key: str, kind: type, task: str) -> Any:
    """A value that may be absent (then None), but not of another type."""
    value = payload.get(key)
    if value is not None and not isinstance(value, kind):
        raise InvalidPayload(f"{task}: {key!r} must be {kind.__name__}, not {type(value).__name__}")
    return value


def timeout_of(payload: Mapping[str, Any], channel: str) -> float:
    """Seconds for one delivery: the payload's `timeout`, else FUSION_<CHANNEL>_TIMEOUT, else the default."""
    value = payload.get("timeout")
    if value is not None:
        seconds = _seconds(value)
        if seconds is None:
            raise InvalidPayload(f"'timeout' must be a number of seconds above 0, not {value!r:.40}")
        return seconds
    name = f"FUSION_{channel.upper()}_TIMEOUT"
    configured = os.environ.get(name)
    if configured:
        seconds = _seconds(configured)
        if seconds is None:
            raise ProviderNotConfigured(f"{name} must be a number of seconds above 0, not {configured!r}")
        return seconds
    return float(defaults.WEBHOOK_TIMEOUT) if channel == "webhook" else DEFAULT_TIMEOUT


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None


def trace() -> dict[str, str]:
    """Headers that name the running job; its id stays the same on every retry, so the other side can drop a repetition."""
    job = get_current_job()
    return {} if job is None else {"X-Fusion-Job": job.id, "X-Fusion-Priority": str(job.priority)}


def phone(value: object, task: str) -> str:
    """An E.164 number. Blanks, dots, dashes and brackets that people type are dropped; a missing country code is an error."""
    if value is None or value == "":
        raise InvalidRecipient(f"{task}: payload has no 'to'")
    number = _SEPARATORS.sub("", value) if isinstance(value, str) else ""
    if not _E164.fullmatch(number):
        shown = mask_phone(number) if number else type(value).__name__
        raise InvalidRecipient(f"{task}: {shown!r} is not an E.164 number: + and country code, 7 to 15 digits in all")
    return number


def email_address(value: object, task: str) -> str:
    """One plain address, without a display name."""
    if value is None or value == "":
        raise InvalidRecipient(f"{task}: payload has no 'to'")
    if not isinstance(value, str) or len(value) > 254 or not _EMAIL.fullmatch(value) or ".." in value:
        shown = mask_email(value) if isinstance(value, str) else type(value).__name__
        raise InvalidRecipient(f"{task}: {shown!r} is not an e-mail address: give it as name@domain")
    return value


def device(value: object, task: str) -> str:
    """A registration token, or `/topics/<name>`."""
    if value is None or value == "":
        raise InvalidRecipient(f"{task}: payload has no 'to'")
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise InvalidRecipient(f"{task}: 'to' is neither a registration token nor /topics/<name>")
    return value


def web_url(value: object, task: str) -> str:
    """An absolute http(s) address without user name or password."""
    if value is None or value == "":
        raise InvalidRecipient(f"{task}: payload has no 'url'")
    try:
        parts = (
            urlsplit(value) if isinstance(value, str) and value.isascii() and value.isprintable() and " " not in value else None
        )
        sound = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, an unclosed bracket
        sound = False
    if not sound or parts is None:
        raise InvalidRecipient(
            f"{task}: 'url' must be an absolute http:// or https:// address with everything else percent-encoded"
        )
    if parts.username is not None or parts.password is not None:
        raise InvalidRecipient(f"{task}: 'url' carries a user name or password: send an Authorization header instead")
    return str(value)


def mask_phone(number: str) -> str:
    """+4915112345612 -> +49*********12"""
    return number[:3] + "*" * max(len(number) - 5, 3) + (number[-2:] if len(number) > 6 else "")


def mask_email(address: str) -> str:
    """anna@example.com -> a***@example.com"""
    local, at, domain = address.rpartition("@")
    return f"{local[:1]}***@{domain}" if at else address[:1] + "***"


def mask_device(token: str) -> str:
    """First and last four characters; a topic is no secret."""
    return token if token.startswith("/topics/") else f"{token[:4]}***{token[-4:]}"


def mask_url(url: str) -> str:
    """Scheme and host: paths and queries of webhooks are often the secret itself."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}/***"
