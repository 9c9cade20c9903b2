"""`Idempotency-Key`: a request that is sent twice takes effect once, and both times gets the same answer.

Nothing extra is stored. The job's id is derived from the key; the nonce, by which the enqueue script detects a repetition, is derived from
key and content. So the key is remembered as long as the job is kept.
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
    """The id and nonce of a request. Without a key `job_id` is empty, and the nonce is a new one."""

    job_id: str
    nonce: str


def once(request: Request, body: Mapping[str, Any]) -> Once:
    """Return the id and nonce for this request. Different tokens may use the same key. 400 for an invalid key."""
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
