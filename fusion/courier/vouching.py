"""Finds deliveries that Fusion did not make. The courier signs what it sends, so it must not sign what others wrote into Redis."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Sequence
from typing import Any

from fusion.courier.delivery import ClaimedDelivery
from fusion.store.write.broker import Broker

#: Why a delivery is not sent.
UNVOUCHED = (
    "nobody vouches for it: it has no seal of Fusion's, and no record of a job says the same; somebody wrote it into Redis, or an older "
    "version accepted it for a job that is gone"
)
#: A delivery as `accept_delivery` (lua/include/job/callbacks.lua) writes it: the seal, then the content.
_DATA = re.compile(rb'\["fusion\.courier\.deliver",null,\["([0-9a-f]{40})"\],(.*)\]\Z', re.DOTALL)


def is_sealed(secret: bytes, delivery: str, data: bytes) -> bool:
    """Return True if a script that knows the secret accepted this data under this id."""
    found = _DATA.match(data)
    if found is None or not secret:
        return False
    inner = hashlib.sha1(secret + delivery.encode() + found[2]).hexdigest()  # noqa: S324 - what Redis's Lua has
    seal = hashlib.sha1(secret + inner.encode()).hexdigest()  # noqa: S324
    return hmac.compare_digest(seal.encode(), found[1])


class Vouching:
    """Trusts a seal, made with a secret in Redis that users who only enqueue can't read.

    A delivery without a seal must agree with the record of its job. It has none if it was accepted before the secret was made.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._secret = b""

    def doubts(self, deliveries: Sequence[ClaimedDelivery], ask: Callable[[Callable[[], Any]], Any]) -> set[str]:
        """Return the ids of those that nobody vouches for. `ask` calls Redis; it answers None where a key is broken."""
        doubtful = self._unsealed(deliveries)
        if doubtful:
            self._secret = ask(self._broker.callbacks_secret) or b""
            doubtful = self._unsealed(doubtful)
        if not doubtful:
            return set()
        agree = ask(lambda: self._broker.agree([delivery.sent for delivery in doubtful])) or [False] * len(doubtful)
        return {delivery.id for delivery, good in zip(doubtful, agree, strict=True) if not good}

    def _unsealed(self, deliveries: Sequence[ClaimedDelivery]) -> list[ClaimedDelivery]:
        return [p for p in deliveries if not is_sealed(self._secret, p.id, p.claimed.fields.get(b"data", b""))]
