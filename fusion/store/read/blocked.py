"""The sets of blocked jobs: how many wait in each, and why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fusion.kernel.redaction import masked_text
from fusion.store.layout import codec

if TYPE_CHECKING:
    from redis import Redis

    from fusion.store.layout.keys import Keys


@dataclass(frozen=True, slots=True)
class BlockedJobs:
    """Jobs of one queue that wait for something other than a time or their turn.

    `kind`: `held` until a worker has their `task`; or `probation`: they were lost repeatedly, and run alone, one after another.
    """

    kind: str
    queue: str
    task: str
    count: int
    since: datetime | None
    #: Why the workers that tried could not run them, with the flag that fixes it; masked, as it may quote the error of an import.
    why: str


def blocked_jobs(connection: Redis, keys: Keys) -> list[BlockedJobs]:
    """List each set that is not empty, by queue and task. Two round trips."""
    from fusion.store.client.adapter import batch  # here: a command's help does without redis-py

    found: Any = connection.hgetall(keys.waits)
    rows = {name: codec.text(raw) for key, raw in found.items() if ":" in (name := codec.text(key))}
    counts = batch(connection, lambda pipe: [pipe.zcard(keys.waiting(name)) for name in rows], raise_on_error=False)
    listed = [
        _blocked(name, rows[name], count) for name, count in zip(rows, counts, strict=True) if isinstance(count, int) and count
    ]
    return sorted(listed, key=lambda one: (one.queue, one.kind, one.task))


def _blocked(name: str, row: str, count: int) -> BlockedJobs:
    from fusion.store.read.base import moment

    kind, queue, task = (*name.split(":", 2), "")[:3]
    since, _, why = row.partition(" ")
    at = moment(int(since) / 1000) if since.isdigit() and len(since) < 15 else None
    return BlockedJobs(kind, queue, task, count, at, masked_text(why))


def in_words(one: BlockedJobs) -> str:
    """Describe one set in a line for people."""
    if one.kind == "held":
        why = one.why.split(": ", 1)[-1]
        return f"{one.count} held in {one.queue} for a worker that has {one.task}: {why}"
    return f"{one.count} on probation in {one.queue}: {one.why}"
