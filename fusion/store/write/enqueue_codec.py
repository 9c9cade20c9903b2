"""Encodes the arguments and decodes the reply of an enqueue, for any client: nothing here sends anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import chain
from typing import Any, Self

from fusion.exceptions import DependencyCycle, DuplicateJob, GraphDropped, QueueFull, UnknownDependency, batch_refusal
from fusion.kernel.timeutil import EPOCH, from_iso
from fusion.store.layout import codec, schema
from fusion.store.layout.compact import COMPACT, compact, expand
from fusion.store.layout.records import Met, NewJob, Room
from fusion.store.scripting.host import to_ms, to_texts


class AcceptedInPart(str):
    """The server's time of enqueueing, with further facts about some of the jobs."""

    #: `discarded`: ids of jobs canceled at once, as their key had no slot. `met`: by id, jobs whose unique key another job had. `deferred`:
    #: ids of jobs that wait for others.
    __slots__ = ("deferred", "discarded", "met")
    discarded: frozenset[str]
    met: Mapping[str, Met]
    deferred: frozenset[str]

    def __new__(cls, at: str, discarded: Iterable[str], met: Mapping[str, Met], deferred: Iterable[str]) -> Self:
        made = super().__new__(cls, at)
        made.discarded, made.met, made.deferred = frozenset(discarded), met, frozenset(deferred)
        return made


def arguments(
    queue: str, jobs: Sequence[NewJob], nonce: str, layout: int, room: Room | None = None, graph: str = ""
) -> tuple[dict[str, Any], list[Any]]:
    """Make ARGV of enqueue.lua for data of that layout: the named arguments and the rest. `nonce`, if given, replaces the jobs' own. `graph`:
    `#`, the number of the call, a point, and the graph's token. Numbers are texts, as they are sent."""
    rest: list[Any] = []
    needs, tied, unique = schema.FIRST, "", ""
    for job in jobs:
        fields = compact(job.fields) if layout >= COMPACT else None
        if fields is not None:
            needs = COMPACT
        else:
            fields = {name: value for name, value in job.fields.items() if value is not None and name != "func"}
        if "ties" in job.fields:  # a process that knows only the first layout would run too many of them
            needs, tied = COMPACT, "k"
        elif "fair_key" in job.fields:
            needs = COMPACT
        if "unique_key" in job.fields:
            needs, unique = COMPACT, "u"
        ttl = "" if job.ttl is None else str(to_ms(job.ttl))
        rest += (job.id, nonce or job.nonce, str(job.priority), _place(job), ttl, str(2 * len(fields)))
        rest += chain.from_iterable(fields.items())
    if room is not None:
        rest += ("" if room.length is None else str(room.length), str(room.to_come))
    return {"queue": queue, "n_jobs": str(len(jobs)), "needs": f"{needs}{tied}{unique}{graph}"}, rest


def accepted(answer: Any, queue: str) -> str:
    """Read the server's time of enqueueing from the reply. Returns `AcceptedInPart` if there are further facts. Raises DuplicateJob,
    QueueFull, UnknownDependency, GraphDropped, or the error for a batch that takes no more."""
    if answer[0] != b"ok":
        raise _refusal(answer, queue)
    at = codec.text(answer[1])
    if len(answer) <= 3:
        return at
    return AcceptedInPart(at, to_texts(answer[3]), dict(map(_met, answer[4])), to_texts(answer[5]))


def _refusal(answer: Any, queue: str) -> Exception:
    if answer[0] == b"full":
        return QueueFull(queue, *map(int, answer[1:]))
    if answer[0] == b"batch":
        return batch_refusal(codec.text(answer[1]), codec.text(answer[2]))
    if answer[0] == b"dropped":
        return GraphDropped("it was given up")
    if answer[0] == b"missing":
        return UnknownDependency(*to_texts(answer[1:]))
    if answer[0] == b"cycle":
        return DependencyCycle.of(*to_texts(answer[1:]))
    return DuplicateJob(*to_texts(answer[1:]))


def _met(row: Sequence[Any]) -> tuple[str, Met]:
    job_id, other, how = to_texts(row[:3])
    if how == "replaced":
        return job_id, Met(other, False, status=codec.text(row[3]))
    pairs = row[3] if len(row) > 3 else ()  # none of a job of the same call
    return job_id, Met(
        other, True, fields=expand({codec.text(name): value for name, value in zip(pairs[::2], pairs[1::2], strict=True)})
    )


def in_part(at: str) -> AcceptedInPart | None:
    """Return a reply of `enqueue` that has more than the time; None for most."""
    return at if type(at) is AcceptedInPart else None


def met(at: str) -> Mapping[str, Met]:
    """Return by id the jobs of such a reply whose unique key another job had."""
    return at.met if isinstance(at, AcceptedInPart) else {}


def in_graph(at: str, met: Mapping[str, Met], deferred: Iterable[str]) -> AcceptedInPart:
    """Return the reply of the last call of a graph, with the facts about all its jobs."""
    return AcceptedInPart(at, (), met, deferred)


def waits(job: NewJob, at: str) -> bool:
    """Return True if a job that was accepted `at` that time waits for its own time: the script decided so, by the same clock."""
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
