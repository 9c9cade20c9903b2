"""What bounds a queue, in words and as JSON: a pause, how many jobs may wait in it, and how long."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from fusion.cli.context import seconds

if TYPE_CHECKING:
    from fusion.store.layout.pauses import Pause
    from fusion.store.read.inspector import QueueInfo


def was_paused(pause: Pause, at: datetime) -> str:
    """The rest of a sentence about a pause that is over; empty if nothing is known of it."""
    told = _told("for", pause, at)
    return f"; it was paused{told}" if told else ""


def remarks(queue: QueueInfo, at: datetime, program: str) -> list[str]:
    """Sentences about the queue, if it is paused or full."""
    found = []
    if queue.pause is not None:
        since = _told("since", queue.pause, at)
        left = "" if queue.pause.left is None else f" for {seconds(queue.pause.left)} more,"
        found.append(f"The queue {queue.name} is paused{left}{since}; to go on: {program} unpause {queue.name}")
    waiting = queue.count + queue.blocked
    if queue.max_length is not None and waiting >= queue.max_length:
        found.append(
            f"The queue {queue.name} is full: {waiting} of {queue.max_length} wait, enqueues are refused (max_queue_length)"
        )
    return found


def document(queue: QueueInfo, at: datetime) -> dict[str, Any]:
    """The same as JSON shows it."""
    return {
        "paused": queue.paused,
        "pause": queue.pause and queue.pause.document(at),
        "max_queue_length": queue.max_length,
        "queue_timeout": queue.timeout,
    }


def _told(word: str, pause: Pause, at: datetime) -> str:
    """Like ` since 3 min by deploy@web1: the provider is down`."""
    time = "" if pause.since is None else f" {word} {seconds((at - pause.since).total_seconds())}"
    return time + (f" by {pause.by}" if pause.by else "") + (f": {pause.reason}" if pause.reason else "")
