"""`Idempotency-Key`: the same request sent twice is done once, and answered alike.

Nothing is stored for it. The key gives the job its id, and key and content together the nonce by which the enqueueing script knows a repetition:
it holds as long as the job is kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fusion.kernel.nonces import new_nonce
from fusion.web.exchange import HttpError, Request

_LONGEST = 255


@dataclass(frozen=True, slots=True)
class Once:
    """`job_id` is empty without a key; the nonce is then a new one."""

    job_id: str
    nonce: str


def once(request: Request, body: Mapping[str, Any]) -> Once:
    """Of this request. Keys of different tokens don't meet. 400 for a key that can't be one."""
    key = request.header("idempotency-key")
    if not key:
        return Once("", new_nonce())
    if len(key) > _LONGEST or not key.isascii() or not key.isprintable():
        raise HttpError(400, "bad_key", f"Idempotency-Key: use 1 to {_LONGEST} printable ASCII characters")
    whose = f"{request.actor.name if request.actor else ''}\n{request.path}\n{key}"
    content = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return Once(f"idem-{_hash(whose)[:40]}", _hash(f"{whose}\n{content}")[:24])


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
