"""Reads queues; a part of the Inspector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any

from fusion.kernel.timeutil import from_iso
from fusion.store.client.classify import OTHERS_DATA
from fusion.store.layout import codec
from fusion.store.layout.compact import meant, sources
from fusion.store.layout.gates import Gate, number, read_gate
from fusion.store.layout.names import LIST_QUEUES, is_reserved
from fusion.store.layout.pauses import QueuePause, read_pause
from fusion.store.layout.score import CLASS_RANGES
from fusion.store.read.base import InspectorBase
from fusion.store.scripting.host import Steps, run

#: Replies per queue in `queues`: seven counts, its pause and how long that lasts, its settings at run time, how many are blocked, how many
#: were stopped, why it is closed; from `_HEADS` on the first job of each class (and the inbox of a LIST queue).
_HEADS, _REPLIES = 13, 16
#: A lower score in the set of running jobs is one of stock RQ's, in seconds; so is +inf.
_LEAST_LEASE = 100_000_000_000
#: The reply of PTTL for a missing key.
_NO_KEY = -2
_ARRIVED = sources(["enqueued_at"])


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue at one moment. `oldest` is when its longest waiting job was enqueued, by the first job of each class.

    `error` names a broken key; counts that could not be read because of it are 0.
    """

    name: str
    low: int
    moderate: int
    high: int
    inbox: int
    started: int
    finished: int
    deferred: int
    canceled: int
    oldest: datetime | None
    error: str = ""
    pause: QueuePause | None = None
    #: Its settings at run time, as `rq:gates` stores them.
    gate: Mapping[str, str] = field(default_factory=dict)
    #: Jobs that wait for neither a time nor their turn. Not part of `count`.
    blocked: int = 0
    #: Jobs of stock RQ's in the queue's own key, if that is a LIST of RQ's; None if it is ours. Not part of `count`.
    rq: int | None = None
    #: Its jobs wait for its rate now, or a task holds it back.
    closed: bool = False
    stopped: int = 0
    #: When the first job of each class was enqueued: LOW, MODERATE, HIGH.
    heads: tuple[datetime | None, ...] = (None, None, None)

    @property
    def bounds(self) -> Gate:
        """The values of `gate` that limit its claims."""
        return Gate.of(self.gate, closed=self.closed)

    @property
    def count(self) -> int:
        """The number of jobs that wait for their turn."""
        return self.low + self.moderate + self.high + self.inbox

    @property
    def length(self) -> int:
        """The number of jobs that wait, blocked ones included: `max_length` limits."""
        return self.count + self.blocked

    @property
    def max_length(self) -> int | None:
        """The most jobs, blocked ones included, that may wait according to its settings at run time; None: not set, the producers' settings apply."""
        return number(self.gate, "max_length")

    @property
    def timeout(self) -> float | None:
        """Seconds after which a job without a ttl expires, according to its settings at run time."""
        ms = number(self.gate, "timeout")
        return None if ms is None else ms / 1000

    @property
    def paused(self) -> bool:
        """True while none of its jobs is started."""
        return self.pause is not None


@dataclass(frozen=True, slots=True)
class Flow:
    """Jobs per minute of a queue: those that came in, those that ended in any way, and of these the failed ones."""

    came: float
    went: float
    failed: float


class QueueInspector(InspectorBase):
    """Counts and lists the jobs of queues."""

    def queue_names(self) -> list[str]:
        """List all queues that are used, or were used within the last day, sorted; reserved ones are left out."""
        return run(self.queue_names_steps())

    def queue_names_steps(self) -> Steps[list[str]]:
        """Do what `queue_names` does."""
        (members,) = yield self._commands(lambda pipe: pipe.smembers(self.keys.queues))
        names = (self.keys.name_of_queue(codec.text(key)) for key in members)
        return sorted(name for name in names if not is_reserved(name))

    def bounded(self) -> list[str]:
        """List the queues that have settings at run time, sorted."""
        found: Any = self.connection.hkeys(self.keys.gates)
        return sorted(codec.text(name) for name in found)

    def count(self, queue: str) -> int:
        """Count the waiting jobs of a queue. Jobs in a LIST queue's inbox are included, those in a LIST of stock RQ's are not."""
        return run(self.count_steps(queue))

    def count_steps(self, queue: str) -> Steps[int]:
        """Do what `count` does."""
        fifo, inbox, zset = yield self._commands(
            lambda pipe: (
                pipe.zcard(self.keys.fifo(queue)),
                pipe.llen(self.keys.queue(queue)),
                pipe.zcard(self.keys.queue(queue)),
            ),
            raise_on_error=False,
        )
        if queue in LIST_QUEUES:
            return int(_sound(fifo)) + int(_sound(inbox)) - (yield from self._struck(queue))
        # The key is one type or none: either LLEN or ZCARD fails.
        return int(_sound(fifo)) + (int(_sound(zset)) if isinstance(inbox, Exception) else 0)

    def queues(self, names: Sequence[str]) -> list[QueueInfo]:
        """Read all of these queues in three round trips: where their jobs wait, the counts, the ages. A broken key of one queue does not hide
        the others."""
        return run(self.queues_steps(names))

    def queues_steps(self, names: Sequence[str]) -> Steps[list[QueueInfo]]:
        """Do what `queues` does."""
        waiting = yield from self._ready_of(names)
        replies = iter((yield self._commands(lambda pipe: self._ask(pipe, waiting), raise_on_error=False)))
        rows = [list(islice(replies, _REPLIES + (ready != self.keys.queue(name)))) for name, ready in waiting]
        heads = yield from self._heads(rows)
        found = []
        for (name, _), row, ages in zip(waiting, rows, heads, strict=True):
            struck = (yield from self._struck(name)) if name in LIST_QUEUES else 0
            found.append(_info(name, row, ages, struck))
        return found

    def flows(self, queues: Sequence[str]) -> list[Flow | None]:
        """Read how many jobs came and went, as sampled by the process that does maintenance. None for queues that were not sampled lately."""
        if not queues:
            return []
        found: Any = self.connection.mget([self.keys.flow(name) for name in queues])
        return [_flow(codec.text(value)) for value in found]

    def _ask(self, pipe: Any, waiting: list[tuple[str, str]]) -> None:
        for name, ready in waiting:
            for low, high in CLASS_RANGES:
                pipe.zcount(ready, low, high)
            pipe.zcount(self.keys.wip(name), _LEAST_LEASE, "(+inf")
            for key in (self.keys.finished, self.keys.deferred, self.keys.canceled):
                pipe.zcard(key(name))
            pipe.get(self.keys.paused(name))
            pipe.pttl(self.keys.paused(name))
            pipe.hget(self.keys.gates, name)
            pipe.zcard(self.keys.blocked(name))
            pipe.zcard(self.keys.stopped(name))
            pipe.get(self.keys.wake_closed(name))
            for low, high in CLASS_RANGES:
                pipe.zrange(ready, high, low, byscore=True, desc=True, offset=0, num=1)
            if ready != self.keys.queue(name):
                pipe.llen(self.keys.queue(name))

    def _struck(self, queue: str) -> Steps[int]:
        """Return how many ids in a LIST queue's inbox belong to no job any more."""
        (found,) = yield self._commands(lambda pipe: pipe.zcard(self.keys.inbox(queue)))
        return max(0, int(found) - 1)

    def _ready_of(self, queues: Sequence[str]) -> Steps[list[tuple[str, str]]]:
        """Return each queue with the ZSET in which its jobs wait. That is not its own key where that is, or once was, a LIST of stock RQ's."""
        noted, *types = yield self._commands(
            lambda pipe: (pipe.smembers(self.keys.fifos), [pipe.type(self.keys.queue(queue)) for queue in queues]),
            raise_on_error=False,
        )
        fifos = LIST_QUEUES if isinstance(noted, Exception) else {codec.text(name) for name in noted} | LIST_QUEUES
        return [
            (queue, self.keys.fifo(queue) if queue in fifos or kind == b"list" else self.keys.queue(queue))
            for queue, kind in zip(queues, types, strict=True)
        ]

    def _heads(self, rows: list[list[Any]]) -> Steps[list[tuple[datetime | None, ...]]]:
        """Return for each row of replies when the first job of each class was enqueued."""
        firsts = [codec.text(ids[0]) if ids and isinstance(ids, list) else "" for row in rows for ids in row[_HEADS:_REPLIES]]
        found = yield self._commands(
            lambda pipe: [pipe.hmget(self.keys.job(job_id), _ARRIVED) for job_id in firsts if job_id], raise_on_error=False
        )
        arrived = map(_arrived, found)
        times = [next(arrived) if job_id else None for job_id in firsts]
        classes = _REPLIES - _HEADS
        return [tuple(times[at : at + classes]) for at in range(0, len(times), classes)]

    def waiting(self, queue: str, offset: int = 0, limit: int = 100) -> list[str]:
        """List ids in the order in which they will be claimed; a LIST queue's inbox comes last. A negative limit means all."""
        return run(self.waiting_steps(queue, offset, limit))

    def waiting_steps(self, queue: str, offset: int = 0, limit: int = 100) -> Steps[list[str]]:
        """Do what `waiting` does."""
        ((_, ready),) = yield from self._ready_of([queue])
        ids = list[str]()
        if limit:  # to Redis an end below 0 counts from the other end
            (page,) = yield self._commands(
                lambda pipe: pipe.zrange(ready, offset, -1 if limit < 0 else offset + limit - 1, desc=True)
            )
            ids = [codec.text(member) for member in page]
        if queue in LIST_QUEUES and not 0 <= limit <= len(ids):
            (count,) = yield self._commands(lambda pipe: pipe.zcard(self.keys.ready(queue)))
            skip = max(0, offset - int(count))
            end = -1 if limit < 0 else skip + limit - len(ids) - 1
            inbox, found = yield self._commands(
                lambda pipe: (
                    pipe.lrange(self.keys.queue(queue), skip, end),
                    pipe.zrange(self.keys.inbox(queue), 0, -1, withscores=True),
                )
            )
            struck = dict(found)
            first = int(struck.get(b"", 0)) + skip + 1
            ids += [codec.text(i) for position, i in enumerate(inbox, first) if position > struck.get(i, -1)]
        return ids

    def position(self, queue: str, job_id: str) -> int | None:
        """Count the jobs of the queue that come before this one; None if it does not wait there."""
        found = self._batch(
            lambda pipe: [pipe.zrevrank(key(queue), job_id) for key in (self.keys.fifo, self.keys.queue)], raise_on_error=False
        )
        rank = _sound(found[0])
        if rank is None and isinstance(found[1], int):
            rank = found[1]
        if rank is None and queue in LIST_QUEUES:
            inbox: Any = self.connection.lpos(self.keys.queue(queue), job_id)
            rank = None if inbox is None else inbox + int(self.connection.zcard(self.keys.ready(queue)))
        return None if rank is None else int(rank)


def _sound(reply: Any) -> Any:
    if isinstance(reply, Exception):
        raise reply
    return reply


def _info(name: str, replies: list[Any], heads: tuple[datetime | None, ...], struck: int) -> QueueInfo:
    row: list[Any] = [0 if isinstance(reply, Exception) else reply for reply in replies]
    return QueueInfo(
        name=name,
        low=row[0],
        moderate=row[1],
        high=row[2],
        inbox=sum(row[_REPLIES:]) - struck if name in LIST_QUEUES else 0,
        started=row[3],
        finished=row[4],
        deferred=row[5],
        canceled=row[6],
        oldest=min(filter(None, heads), default=None),
        error=_trouble(replies),
        pause=_pause(replies[7], row[8]),
        gate=read_gate(row[9] or None),
        blocked=row[10],
        stopped=row[11],
        rq=_stock(name, row),
        closed=row[12] in (b"rate", "rate"),
        heads=heads,
    )


def _arrived(row: Any) -> datetime | None:
    return None if isinstance(row, Exception) else from_iso(meant(("enqueued_at",), _ARRIVED, row)["enqueued_at"])


def _trouble(row: list[Any]) -> str:
    """Return the first error among replies in words: a key is not of our type."""
    told = next((str(reply) for reply in row if isinstance(reply, Exception)), "")
    return f"a key holds {OTHERS_DATA} (WRONGTYPE)" if told.startswith("WRONGTYPE") else told


def _pause(stored: Any, left_ms: int) -> QueuePause | None:
    """Return the pause. A key of another type, which a `Forgiving` connection reads as nothing, is a pause to every worker."""
    if left_ms == _NO_KEY:
        return None
    return read_pause(stored if isinstance(stored, bytes) else b"", left_ms)


def _stock(name: str, row: list[Any]) -> int | None:
    """Return how many jobs of stock RQ's are in a queue's key, if that is a LIST of RQ's."""
    return int(row[_REPLIES]) if len(row) > _REPLIES and name not in LIST_QUEUES else None


def _flow(stored: str) -> Flow | None:
    words = stored.split()
    if len(words) != 8 or not all(word.isascii() and word.isdecimal() and len(word) < 16 for word in words):
        return None
    first, last = [int(word) for word in words[:4]], [int(word) for word in words[4:]]
    if last[0] <= first[0]:
        return None
    came, went, failed = (max(0.0, (b - a) * 60_000 / (last[0] - first[0])) for a, b in zip(first[1:], last[1:], strict=True))
    return Flow(came, went, failed)
