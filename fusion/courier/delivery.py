"""A delivery as it was claimed: target, text, number of tries."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fusion.delivery.message import message
from fusion.kernel.timeutil import from_iso
from fusion.kernel.webhook_request import WebhookRequest, split_request
from fusion.retry import retries_done
from fusion.store.layout.records import Claimed
from fusion.store.write.broker import Broker

#: Why a delivery is not sent.
UNVOUCHED = (
    "its origin is not known: it has no seal of Fusion's, and no record of a job says the same; another program wrote it into Redis, or an older "
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
        """Return the ids of those that neither a seal nor a job's record confirms. `ask` calls Redis; it answers None where a key is broken."""
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


@dataclass(frozen=True, slots=True)
class ClaimedDelivery:
    """A delivery under way. `id`: the webhook's id, the same at each try. `tries`: includes the try that comes next."""

    claimed: Claimed
    url: str = field(repr=False)
    body: bytes = field(repr=False)
    tries: int
    request: WebhookRequest = field(repr=False)
    #: The stored fields, see `Broker.agree`.
    sent: Mapping[str, Any] = field(repr=False)

    @property
    def id(self) -> str:
        return self.claimed.id

    @classmethod
    def of(cls, claimed: Claimed) -> ClaimedDelivery:
        """Read a claimed job. ValueError if what is stored is no delivery."""
        sent = _stored(claimed.fields.get(b"data", b""))
        ended_at = from_iso(sent.get("ended_at"))
        if ended_at is None:
            raise ValueError("it does not say when the job ended")
        texts = {name: str(sent.get(name) or "") for name in ("url", "job_id", "queue", "status", "task", "log_tag", "error")}
        url = texts.pop("url")
        attempts = sent.get("attempts")
        own = sent.get("body")  # an alert of doctor's; only a seal confirms one
        body = (
            own.encode()
            if isinstance(own, str)
            else message(**texts, ended_at=ended_at, attempts=attempts if isinstance(attempts, int) else None)
        )
        tries = retries_done(claimed.fields.get(b"retryCount")) + 1
        return cls(claimed, url, body, tries, split_request(url)[1], sent)

    @property
    def content(self) -> bytes:
        """The body to send: nothing with a GET."""
        return self.body if self.request.method == "POST" else b""


def _stored(data: bytes) -> dict[str, Any]:
    """Read what `accept_delivery` (lua/include/job/callbacks.lua) wrote: a call's form, with all in its keywords."""
    try:
        call = json.loads(data.decode("utf-8", "replace"))
        sent = call[3]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ValueError("it is not a delivery") from None
    if not isinstance(sent, dict) or not isinstance(sent.get("url"), str):
        raise ValueError("it does not say where to")
    return sent
