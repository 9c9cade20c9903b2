"""A delivery as it was claimed: target, text, number of tries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fusion.delivery.message import message
from fusion.kernel.timeutil import from_iso
from fusion.retry import retries_done
from fusion.store.layout.records import Claimed


@dataclass(frozen=True, slots=True)
class ClaimedDelivery:
    """A delivery under way. `id`: the webhook's id, the same at each try. `tries`: includes the try that comes next."""

    claimed: Claimed
    url: str = field(repr=False)
    body: bytes = field(repr=False)
    tries: int
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
        body = message(**texts, ended_at=ended_at, attempts=attempts if isinstance(attempts, int) else None)
        return cls(claimed, url, body, retries_done(claimed.fields.get(b"retryCount")) + 1, sent)


def _stored(data: bytes) -> dict[str, Any]:
    """Read what `tell_ended` (lua/include/job/callbacks.lua) wrote: a call's form, with all in its keywords."""
    try:
        call = json.loads(data.decode("utf-8", "replace"))
        sent = call[3]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ValueError("it is not a delivery") from None
    if not isinstance(sent, dict) or not isinstance(sent.get("url"), str):
        raise ValueError("it does not say where to")
    return sent
