"""Reads the fleet for metrics: queues by the samples that are kept, everything else by a few small reads. Its cost is bounded."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from fusion.store.layout import codec
from fusion.store.layout.history import CLASSES
from fusion.store.layout.names import is_reserved
from fusion.store.read.base import InspectorBase
from fusion.store.read.cron_inspector import CronInspector
from fusion.store.read.event_inspector import EventInspector, SinkInfo
from fusion.store.read.queue_inspector import Flow, flow_of
from fusion.store.read.worker_inspector import WORKER_FIELDS, WorkerInfo, worker_of

#: What is counted of each queue, in the order of a sample.
STATUSES = ("started", "blocked", "deferred", "finished", "canceled", "stopped")
#: Words of a sample: the two samples of the flow, depth and age of each class, the counts, and whether the queue is paused.
_FLOW, _DEPTHS = 8, 8 + 2 * CLASSES
_WORDS = _DEPTHS + len(STATUSES) + 1
#: Samples, and workers, that one call reads.
_PAGE = 500
#: Worker hashes that are read at most.
_WORKERS = 2000


@dataclass(frozen=True, slots=True)
class QueueSample:
    """A queue as it was sampled `age` seconds ago. By class from LOW on: `depths`, jobs that waited; `ages`, seconds that the first had waited."""

    name: str
    age: float
    flow: Flow | None
    depths: tuple[int, ...]
    ages: tuple[int, ...]
    counts: Mapping[str, int]
    paused: bool


@dataclass(frozen=True, slots=True)
class FleetSample:
    """The figures of a fleet for metrics. `age`: seconds since its queues were sampled; `due_late`, `cron_late`: how late the first scheduled job,
    and the first cron entry, is. `info`: INFO of the server. `seconds`: how long the read took."""

    age: float
    queues: tuple[QueueSample, ...]
    workers: tuple[WorkerInfo, ...]
    failed: int
    scheduled: int
    suspended: bool
    due_late: float
    cron_late: float
    schedulers: int
    relays: int
    sinks: tuple[SinkInfo, ...]
    callbacks: int
    info: Mapping[str, Any]
    seconds: float


class SampleInspector(InspectorBase):
    """Reads samples. No call here takes Redis more than 2 ms, at thousands of queues and workers."""

    def fleet(self) -> FleetSample:
        """Read all that metrics show of the fleet."""
        began = time.perf_counter()
        keys = self.keys
        (seconds, micros), started, members, *counts, due, cron, suspended = self._batch(
            lambda pipe: (
                pipe.time(),
                pipe.hget(keys.sample, "began"),
                pipe.smembers(keys.queues),
                pipe.zcard(keys.failed),
                pipe.zcard(keys.scheduled),
                pipe.zcard(keys.callbacks_open),
                pipe.zrange(keys.scheduled, 0, 0, withscores=True),
                pipe.zrange(keys.cron_due, 0, 0, withscores=True),
                pipe.exists(keys.suspended),
            )
        )
        now = seconds + micros / 1e6
        names = sorted(keys.name_of_queue(codec.text(key)) for key in members)
        queues = self._queues([name for name in names if not is_reserved(name)], now)
        oldest = max((one.age for one in queues), default=0.0)
        events = EventInspector(self.connection, prefix=keys.prefix)
        return FleetSample(
            age=max(oldest, now - codec.number(started) / 1000) if started else oldest,
            queues=tuple(queues),
            workers=tuple(self._workers(now)),
            failed=counts[0],
            scheduled=counts[1],
            callbacks=counts[2],
            due_late=_late(due, now),
            cron_late=_late(cron, now),
            suspended=bool(suspended),
            schedulers=sum(one.alive for one in CronInspector(self.connection, prefix=keys.prefix).schedulers()),
            relays=sum(one.alive for one in events.relays()),
            sinks=tuple(events.sinks()),
            info=self._info(),
            seconds=time.perf_counter() - began,
        )

    def _info(self) -> Mapping[str, Any]:
        found: Any = self.connection.info()
        return dict(found)

    def _queues(self, names: Sequence[str], now: float) -> list[QueueSample]:
        """Read the samples of these queues. One that no process has sampled yet, or not for five minutes, is left out."""
        found = []
        for page in _pages(names, _PAGE):
            rows: Any = self.connection.mget([self.keys.flow(name) for name in page])
            for name, row in zip(page, rows, strict=True):
                if row and (sample := _sample(name, codec.text(row), now)):
                    found.append(sample)
        return found

    def _workers(self, now: float) -> list[WorkerInfo]:
        members: Any = self.connection.smembers(self.keys.workers)
        keys = sorted(codec.text(key) for key in members)[:_WORKERS]
        found = []
        for page in _pages(keys, _PAGE):
            for key, row in zip(page, self._worker_rows(page), strict=True):
                if isinstance(row, Exception):
                    continue
                fields = {name: codec.text(value) for name, value in zip(WORKER_FIELDS, row, strict=True) if value is not None}
                if "incarnation" in fields:
                    found.append(worker_of(self.keys.name_of_worker(key), fields, {}, now * 1000))
        return found

    def _worker_rows(self, keys: Sequence[str]) -> list[Any]:
        return self._batch(lambda pipe: [pipe.hmget(key, WORKER_FIELDS) for key in keys], raise_on_error=False)


def _pages(items: Sequence[str], size: int) -> list[Sequence[str]]:
    return [items[at : at + size] for at in range(0, len(items), size)]


def _late(first: Any, now: float) -> float:
    """Return how many seconds ago the first entry was due; 0 if it is due later."""
    return max(0.0, now - float(first[0][1])) if first else 0.0


def _sample(name: str, stored: str, now: float) -> QueueSample | None:
    words = stored.split()
    if len(words) != _WORDS or not all(word.isascii() and word.isdecimal() and len(word) < 16 for word in words):
        return None
    figures = iter(map(int, words[_FLOW:]))
    waiting = list(islice(figures, 2 * CLASSES))
    counts = dict(zip(STATUSES, figures, strict=False))
    return QueueSample(
        name,
        max(0.0, now - int(words[4]) / 1000),
        flow_of(stored),
        tuple(waiting[::2]),
        tuple(waiting[1::2]),
        counts,
        words[-1] == "1",
    )
