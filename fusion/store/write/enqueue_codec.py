"""Arguments and answer of an enqueue, whichever client sends it: nothing here sends anything."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from itertools import chain
from typing import Any, Self

from fusion.exceptions import DuplicateJob, QueueFull
from fusion.kernel.timeutil import EPOCH, from_iso
from fusion.store.layout import codec, schema
from fusion.store.layout.compact import COMPACT, compact
from fusion.store.layout.records import NewJob, Room
from fusion.store.scripting.host import to_ms, to_texts


class AcceptedInPart(str):
    """The server's time of enqueueing, when not all of the jobs wait."""

    #: `discarded`: ids of those that were canceled at once, as their key had no slot.
    __slots__ = ("discarded",)
    discarded: frozenset[str]

    def __new__(cls, at: str, discarded: Iterable[str]) -> Self:
        made = super().__new__(cls, at)
        made.discarded = frozenset(discarded)
        return made


def arguments(
    queue: str, jobs: Sequence[NewJob], nonce: str, layout: int, room: Room | None = None
) -> tuple[dict[str, Any], list[Any]]:
    """Make ARGV of enqueue.lua for data of that layout: the named arguments and the rest. `nonce`, if there is one, in place of the jobs'
    own. Numbers as texts, as which they are sent."""
    rest: list[Any] = []
    needs, keyed = schema.FIRST, ""
    for job in jobs:
        fields = compact(job.fields) if layout >= COMPACT else None
        if fields is not None:
            needs = COMPACT
        else:
            fields = {name: value for name, value in job.fields.items() if value is not None and name != "func"}
        if "ties" in job.fields:  # whoever knows the first layout alone would let too many of them run
            needs, keyed = COMPACT, "k"
        elif "fair_key" in job.fields:
            needs = COMPACT
        ttl = "" if job.ttl is None else str(to_ms(job.ttl))
        rest += (job.id, nonce or job.nonce, str(job.priority), _place(job), ttl, str(2 * len(fields)))
        rest += chain.from_iterable(fields.items())
    if room is not None:
        rest += ("" if room.length is None else str(room.length), str(room.to_come))
    return {"queue": queue, "n_jobs": str(len(jobs)), "needs": f"{needs}{keyed}"}, rest


def accepted(answer: Any, queue: str) -> str:
    """Read the server's time of enqueueing from the answer. `AcceptedInPart` if jobs were discarded. Raises DuplicateJob
    or QueueFull."""
    if answer[0] == b"full":
        raise QueueFull(queue, *map(int, answer[1:]))
    if answer[0] != b"ok":
        raise DuplicateJob(codec.text(answer[1]), codec.text(answer[2]))
    at = codec.text(answer[1])
    return AcceptedInPart(at, to_texts(answer[3])) if len(answer) > 3 else at


def discarded(at: str) -> Collection[str]:
    """The ids of the jobs that were canceled at once, of an answer of `enqueue`."""
    return at.discarded if isinstance(at, AcceptedInPart) else ()


def waits(job: NewJob, at: str) -> bool:
    """True if a job that was accepted `at` that time waits for its own: the script decided so, by the same clock."""
    if job.due is None:
        return job.delay is not None and to_ms(job.delay) > 0
    moment = from_iso(at)
    return moment is not None and _due_ms(job.due) > (moment - EPOCH) // timedelta(milliseconds=1)


def _place(job: NewJob) -> str:
    fair_key = job.fields.get("fair_key")
    turn = "" if fair_key is None else f"={fair_key}"
    if job.due is None and job.delay is None:
        return f"front{turn}" if job.front else f"back{turn}"
    front = "f" if job.front else ""
    if job.due is not None:
        return f"@{_due_ms(job.due)}{front}{turn}"
    return f"+{max(0, to_ms(job.delay or 0))}{front}{turn}"


def _due_ms(due: float) -> int:
    return max(0, round(due * 1000))
