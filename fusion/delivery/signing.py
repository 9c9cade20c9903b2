"""Signatures as in Standard Webhooks 1.0.0 (github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md): HMAC-SHA256, `v1`.

`verify` is for receivers of callbacks; any library of that standard works, too.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets as random
import time
from collections.abc import Mapping, Sequence

from fusion.exceptions import ConfigurationError, FusionError

#: Seconds by which a receiver's clock and the timestamp may differ, in either direction.
TOLERANCE = 300
_PREFIX = "whsec_"
# Full stops separate the signed parts: with one in the id two messages could have the same signature.
_ID = re.compile(r"[A-Za-z0-9_:-]{1,128}")
_TIMESTAMP = re.compile(r"[0-9]{1,12}")


class InvalidSignature(FusionError):
    """The message is not from a holder of the secret, was changed, or is too old. Answer 400 and do nothing."""

    code = "FUS-132"


def new_secret() -> str:
    """Return a new secret for one endpoint: `whsec_` and 32 random bytes in base64."""
    return _PREFIX + base64.b64encode(random.token_bytes(32)).decode()


def sign(message_id: str, body: bytes, secrets: str | Sequence[str], timestamp: int | None = None) -> dict[str, str]:
    """Return the three headers of one try. `message_id`: the same at each try. `timestamp`: the time of the try, Unix seconds, None = now.

    Several secrets give several signatures: while a secret is replaced, pass the new and the old one. ConfigurationError for an invalid
    secret, ValueError for an id that can't be signed safely.
    """
    if not _ID.fullmatch(message_id):
        raise ValueError("a webhook-id is 1 to 128 of the characters A-Z a-z 0-9 _ : -")
    stamp = str(int(time.time()) if timestamp is None else timestamp)
    signatures = [f"v1,{base64.b64encode(_mac(key, message_id, stamp, body)).decode()}" for key in _keys(secrets)]
    return {"webhook-id": message_id, "webhook-timestamp": stamp, "webhook-signature": " ".join(signatures)}


def verify(
    headers: Mapping[str, str],
    body: object,
    secrets: str | Sequence[str],
    *,
    now: float | None = None,
    tolerance: float = TOLERANCE,
) -> str:
    """Check a message and return its id, by which a receiver recognises duplicates. InvalidSignature if anything is wrong.

    `body`: the received bytes, before any JSON parser. `secrets`: the endpoint's secret, or several while it is being replaced.
    """
    if not isinstance(body, (bytes, bytearray)):
        raise TypeError("verify() needs the body as the bytes that came, before any parser or decoding")
    found = {name.lower(): value for name, value in headers.items()}
    message_id, stamp, signatures = (found.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not (_ID.fullmatch(message_id) and _TIMESTAMP.fullmatch(stamp) and signatures):
        raise InvalidSignature("webhook-id, webhook-timestamp or webhook-signature is missing or malformed")
    age = (time.time() if now is None else now) - int(stamp)
    if not abs(age) <= tolerance:
        raise InvalidSignature(
            f"the webhook-timestamp is {abs(age):.0f} s {'old' if age > 0 else 'ahead'}; at most {tolerance:g} s are allowed"
        )
    expected = [_mac(key, message_id, stamp, bytes(body)) for key in _keys(secrets)]
    given = [_decoded(signature[3:]) for signature in signatures.split(" ")[:32] if signature.startswith("v1,")]
    # Compare all of them, so that the time reveals nothing.
    if not sum(hmac.compare_digest(one, other) for one in expected for other in given):
        raise InvalidSignature("no signature fits the body, the id, the timestamp and the secret")
    return message_id


def check_secret(secret: str) -> bytes:
    """Return the key inside a secret. ConfigurationError, without the secret, unless it is 24 to 64 bytes in base64."""
    text = secret.removeprefix(_PREFIX)
    key = _decoded(text + "=" * (-len(text) % 4))
    if not 24 <= len(key) <= 64:
        raise ConfigurationError(
            "a webhook secret is whsec_ and base64 of 24 to 64 bytes; fusion.delivery.signing.new_secret() makes one",
            code="FUS-221",
        )
    return key


def _keys(secrets: str | Sequence[str]) -> list[bytes]:
    keys = [check_secret(secret) for secret in ([secrets] if isinstance(secrets, str) else secrets)]
    if not keys:
        raise ConfigurationError("no webhook secret: nothing can be signed or verified without one", code="FUS-221")
    return keys


def _mac(key: bytes, message_id: str, stamp: str, body: bytes) -> bytes:
    return hmac.new(key, f"{message_id}.{stamp}.".encode() + body, hashlib.sha256).digest()


def _decoded(text: str) -> bytes:
    """Return the bytes of a base64 text; empty if it is invalid."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
