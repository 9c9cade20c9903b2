"""Deliveries of callbacks as JSON shows them, and another try of those that were not delivered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fusion.callbacks import shown_url
from fusion.documents.times import iso
from fusion.kernel.nonces import new_nonce

if TYPE_CHECKING:
    from fusion.store.read.callback_inspector import DeliveryInfo
    from fusion.store.write.broker import Broker

_CHUNK = 100


def document(one: DeliveryInfo) -> dict[str, Any]:
    """A delivery. Of its URL only the host: the rest may hold a token."""
    return {
        "id": one.id,
        "status": one.status,
        "to": shown_url(one.url),
        "job_id": one.job_id,
        "queue": one.queue,
        "job_status": one.job_status,
        "tries": one.tries,
        "answer": one.answer or None,
        "created_at": iso(one.created_at),
        "ended_at": iso(one.ended_at),
        "next_at": iso(one.next_at),
    }


def again(broker: Broker, now: float, chosen: Sequence[DeliveryInfo], refused: dict[str, str]) -> int:
    """Try these again and return how many; the reason of each other goes to `refused`. `now`: Unix seconds by the server's clock."""
    count = 0
    ended = [one.id for one in chosen if one.status in ("failed", "canceled")]
    answers = {one.id: broker.reschedule(one.id, now) for one in chosen if one.status in ("waiting", "retrying")}
    for start in range(0, len(ended), _CHUNK):
        part = ended[start : start + _CHUNK]
        answers |= dict(zip(part, broker.requeue(part, new_nonce()), strict=True))
    for delivery, answer in answers.items():
        if answer in ("ok", "queued", "started"):  # it is on its way
            count += 1
        else:
            refused[delivery] = "no such callback" if answer == "missing" else f"it is {answer}"
    return count
