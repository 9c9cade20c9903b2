"""Reads queues; a part of the Inspector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any

from fusion.kernel.timeutil import from_iso
from fusion.store.client.classify import OTHERS_DATA
from fusion.store.layout import codec
from fusion.store.layout.gates import Gate, read_gate
from fusion.store.layout.names import LIST_QUEUES, is_reserved
from fusion.store.layout.pauses import QueuePause, read_pause
from fusion.store.layout.score import CLASS_RANGES
from fusion.store.read.base import InspectorBase, clock
from fusion.store.scripting.host import PipelineCall, Steps, run

#: Replies per queue in `queues`: seven counts, its pause and how long that lasts, its settings at run time, how many are blocked, how many
#: were stopped, why it is closed, how fast it moves; from `_HEADS` on the first job of each class (and the inbox of a LIST queue).
_HEADS, _REPLIES = 14, 17
#: A lower score in the set of running jobs is one of stock RQ's, in seconds; so is +inf.
_LEAST_LEASE = 100_000_000_000
#: The reply of PTTL for a missing key.
_NO_KEY = -2


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
    #: When this was read, by the server's clock.
    at: datetime = field(compare=False)
    error: str = ""
    pause: QueuePause | None = None
    #: Its settings at run time.
    bounds: Gate = field(default_factory=Gate)
    #: Jobs that wait for neither a time nor their turn. Not part of `count`.
    blocked: int = 0
    #: Jobs of stock RQ's in the queue's own key, if that is a LIST of RQ's; None if it is ours. Not part of `count`.
    rq: int | None = None
    stopped: int = 0
    #: When the first job of each class was enqueued: LOW, MODERATE, HIGH.
    heads: tuple[datetime | None, ...] = (None, None, None)
    #: How fast it moves; None if it was not sampled lately.
    flow: Flow | None = None
    #: The function of the job that is claimed next; empty if its record has no field for it.
    function: str = ""

    @property
    def count(self) -> int:
        """The number of jobs that wait for their turn."""
        return self.low + self.moderate + self.high + self.inbox

    @property
    def length(self) -> int:
        """The number of jobs that wait, blocked ones included: `max_length` limits."""
        return self.count + self.blocked

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

    def has_queue(self, name: str) -> bool:
        """Return True if `queue_names` lists this queue."""
        return not is_reserved(name) and bool(self.connection.sismember(self.keys.queues, self.keys.queue(name)))

    def queue_names(self) -> list[str]:
        """List all queues that are used, or were used within the last day, sorted; reserved ones are left out."""
        return run(self.queue_names_steps())

    def queue_names_steps(self) -> Steps[list[str]]:
        """Do what `queue_names` does."""
        commands = PipelineCall(self.connection)
        commands.pipe.smembers(self.keys.queues)
        names = (self.keys.name_of_queue(codec.text(key)) for key in (yield commands)[0])
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
        commands = PipelineCall(self.connection, raise_on_error=False)
        commands.pipe.zcard(self.keys.fifo(queue))
        commands.pipe.llen(self.keys.queue(queue))
        commands.pipe.zcard(self.keys.queue(queue))
        fifo, inbox, zset = yield commands
        if queue in LIST_QUEUES:
            return int(_sound(fifo)) + int(_sound(inbox)) - (yield from self._struck(queue))
        # The key is one type or none: either LLEN or ZCARD fails.
        return int(_sound(fifo)) + (int(_sound(zset)) if isinstance(inbox, Exception) else 0)

    def queues(self, names: Sequence[str]) -> list[QueueInfo]:
        """Read all of these queues in three round trips: where their jobs wait; the counts, with the clock; the ages. A broken key of one queue
        does not hide the others."""
        return run(self.queues_steps(names))

    def queues_steps(self, names: Sequence[str]) -> Steps[list[QueueInfo]]:
        """Do what `queues` does."""
        waiting = yield from self._ready_of(names)
        commands = PipelineCall(self.connection, raise_on_error=False)
        commands.pipe.time()
        for name, ready in waiting:
            self._read_queue(commands.pipe, name, ready)
        time, *replies = yield commands
        at, rest, rows = clock(_sound(time)), iter(replies), list[list[Any]]()
        for name, ready in waiting:
            rows.append(list(islice(rest, _REPLIES + (ready != self.keys.queue(name)))))
        commands = PipelineCall(self.connection, raise_on_error=False)
        for row in rows:
            for ids in row[_HEADS:_REPLIES]:
                if ids and isinstance(ids, list):
                    commands.pipe.hmget(self.keys.job(codec.text(ids[0])), ["enqueued_at", "created_at", "func"])
        arrived = iter((yield commands))
        found = []
        for (name, _), row in zip(waiting, rows, strict=True):
            struck = (yield from self._struck(name)) if name in LIST_QUEUES else 0
            found.append(_info(name, row, arrived, struck, at))
        return found

    def flows(self, queues: Sequence[str]) -> list[Flow | None]:
        """Read how many jobs came and went, as sampled by the process that does maintenance. None for queues that were not sampled lately."""
        if not queues:
            return []
        found: Any = self.connection.mget([self.keys.flow(name) for name in queues])
        return [flow_of(codec.text(value)) for value in found]

    def _read_queue(self, pipe: Any, name: str, ready: str) -> None:
        """Read a queue whose jobs wait in the ZSET `ready`."""
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
        pipe.mget(self.keys.flow(name))  # as nothing, if the key holds something else
        for low, high in CLASS_RANGES:
            pipe.zrange(ready, high, low, byscore=True, desc=True, offset=0, num=1)
        if ready != self.keys.queue(name):
            pipe.llen(self.keys.queue(name))

    def _struck(self, queue: str) -> Steps[int]:
        """Return how many ids in a LIST queue's inbox belong to no job any more."""
        commands = PipelineCall(self.connection)
        commands.pipe.zcard(self.keys.inbox(queue))
        return max(0, int((yield commands)[0]) - 1)

    def _ready_of(self, queues: Sequence[str]) -> Steps[list[tuple[str, str]]]:
        """Return each queue with the ZSET in which its jobs wait. That is not its own key where that is, or once was, a LIST of stock RQ's."""
        commands = PipelineCall(self.connection, raise_on_error=False)
        commands.pipe.smembers(self.keys.fifos)
        for queue in queues:
            commands.pipe.type(self.keys.queue(queue))
        noted, *types = yield commands
        fifos = LIST_QUEUES if isinstance(noted, Exception) else LIST_QUEUES.union(map(codec.text, noted))
        found = []
        for queue, kind in zip(queues, types, strict=True):
            own = queue not in fifos and kind != b"list"
            found.append((queue, self.keys.queue(queue) if own else self.keys.fifo(queue)))
        return found

    def waiting(self, queue: str, offset: int = 0, limit: int = 100) -> list[str]:
        """List ids in the order in which they will be claimed; a LIST queue's inbox comes last. A negative limit means all."""
        return run(self.waiting_steps(queue, offset, limit))

    def waiting_steps(self, queue: str, offset: int = 0, limit: int = 100) -> Steps[list[str]]:
        """Do what `waiting` does."""
        ((_, ready),) = yield from self._ready_of([queue])
        ids = list[str]()
        if limit:  # to Redis an end below 0 counts from the other end
            commands = PipelineCall(self.connection)
            commands.pipe.zrange(ready, offset, -1 if limit < 0 else offset + limit - 1, desc=True)
            ids = [codec.text(member) for member in (yield commands)[0]]
        if queue in LIST_QUEUES and not 0 <= limit <= len(ids):
            commands = PipelineCall(self.connection)
            commands.pipe.zcard(self.keys.ready(queue))
            skip = max(0, offset - int((yield commands)[0]))
            end = -1 if limit < 0 else skip + limit - len(ids) - 1
            commands = PipelineCall(self.connection)
            commands.pipe.lrange(self.keys.queue(queue), skip, end)
            commands.pipe.zrange(self.keys.inbox(queue), 0, -1, withscores=True)
            inbox, found = yield commands
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


def _info(name: str, replies: list[Any], arrived: Iterator[Any], struck: int, at: datetime) -> QueueInfo:
    """Make it from the replies for a queue. `arrived`: the times of the first jobs that the replies name."""
    row, error, function = list(replies), "", ""
    for nth, reply in enumerate(replies):
        if isinstance(reply, Exception):
            row[nth], error = 0, error or str(reply)
    heads = list[datetime | None]()
    for ids in row[_HEADS:_REPLIES]:
        times = next(arrived) if ids else []  # `enqueued_at` is only stored if it is not `created_at`
        known = bool(times) and not isinstance(times, Exception)
        heads.append(from_iso(times[0] or times[1]) if known else None)
        function = codec.text(times[2]) if known and times[2] else function
    ours, in_list = name in LIST_QUEUES, sum(row[_REPLIES:])
    return QueueInfo(
        name=name,
        low=row[0],
        moderate=row[1],
        high=row[2],
        inbox=in_list - struck if ours else 0,
        started=row[3],
        finished=row[4],
        deferred=row[5],
        canceled=row[6],
        oldest=min(filter(None, heads), default=None),
        at=at,
        error=f"a key holds {OTHERS_DATA} (WRONGTYPE)" if error.startswith("WRONGTYPE") else error,
        # A key of another type, which a `Forgiving` connection reads as nothing, is a pause to every worker.
        pause=None if row[8] == _NO_KEY else read_pause(row[7] or b"", row[8]),
        bounds=Gate.of(read_gate(row[9] or None), closed=row[12] in (b"rate", "rate")),
        blocked=row[10],
        stopped=row[11],
        rq=None if ours or len(row) == _REPLIES else in_list,
        heads=tuple(heads),
        function=function,
        flow=flow_of(codec.text(row[13][0])) if row[13] and row[13][0] else None,
    )


def flow_of(stored: str) -> Flow | None:
    """Return how fast a queue moves, from its two samples; None if they are not there."""
    words = stored.split(" ", 8)[:8]
    if len(words) != 8 or not all(word.isascii() and word.isdecimal() and len(word) < 16 for word in words):
        return None
    first, last = [int(word) for word in words[:4]], [int(word) for word in words[4:]]
    if last[0] <= first[0]:
        return None
    came, went, failed = (max(0.0, (b - a) * 60_000 / (last[0] - first[0])) for a, b in zip(first[1:], last[1:], strict=True))
    return Flow(came, went, failed)
