"""Statistics of one process's jobs: how many, how long they waited and ran, which lacked a key. It sums them and sends them to Redis."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from math import ceil, inf
from typing import TYPE_CHECKING

from redis.exceptions import ResponseError

from fusion.kernel.timeutil import from_iso
from fusion.runtime.membership import Membership
from fusion.runtime.outbox import PendingOutcome
from fusion.runtime.redis_link import RedisLink
from fusion.store.client.connections import classify, one_line
from fusion.store.layout.history import CLASSES, OTHER, PEAK, SLOWEST, bucket
from fusion.store.write.broker import Broker

if TYPE_CHECKING:
    from fusion.metrics.tally import JobTally

#: What an outcome counts as. Other outcomes do not count: their run time does not show how long a job takes.
_KINDS = {"finished": "completed", "repeat": "completed", "failed": "failed", "retry": "retried"}
_NAME = re.compile(rb"[A-Za-z0-9_.]{1,200}")
_FUNCTION = re.compile(rb'\["([\w.]{1,200})"')
#: Minutes that are kept while Redis is away; and fields of one call, so that it stays short.
_MINUTES, _FIELDS = 60, 500

#: Jobs counted together: queue, function, class, what the outcome counts as, bucket of the run time, bucket of the wait (-1: none).
_Seen = tuple[str, bytes, int, str, int, int]
#: For each ("queue", "function" or "keyless", name): minute, field, count or maximum.
_Rows = dict[tuple[str, str], list[tuple[int, str, int]]]


@dataclass(slots=True)
class _Sum:
    """The number of jobs counted together, their slowest run in seconds, and the most bytes of memory that the process of one held."""

    count: int = 0
    slowest: float = 0.0
    peak: int = 0


class History:
    """Sums the outcomes of jobs by minute, for queues and functions, and sends the sums to Redis each `every` seconds.

    A kill loses sums that were not sent, and so does an error reply: these are only statistics, and must delay nothing.
    """

    def __init__(self, broker: Broker, link: RedisLink, membership: Membership, every: float, log: logging.Logger) -> None:
        self._broker, self._link, self._membership, self._every, self._log = broker, link, membership, every, log
        self._sums: dict[int, dict[_Seen, _Sum]] = {}
        self._keyless: Counter[str] = Counter()
        self._offset, self._second, self._came = time.time() - time.monotonic(), b"", 0.0
        self._calls: list[tuple[int, _Rows]] = []
        self._number = 0
        self._refused = ""
        #: Counts the same for `/metrics` of the probe port; None without one.
        self.tally: JobTally | None = None
        #: When the sums are sent; `inf` while there are none.
        self.next_at = inf

    def note(self, outcome: PendingOutcome) -> None:
        """Count an outcome that Redis has accepted."""
        what = _KINDS.get(outcome.decision.kind)
        if what is None:
            if self.tally is not None:
                of = _class_of(outcome.claimed.fields.get(b"priority", b""))
                self.tally.note(outcome.decision.kind, outcome.claimed.queue, of)
            return
        fields, at = outcome.claimed.fields, outcome.at
        waited, wait = -1, 0.0
        if b"attempts" not in fields and (came := self._unix(fields.get(b"enqueued_at", b""))):
            wait = self._offset + at - outcome.elapsed - came
            waited = bucket(wait)
        seen = (
            outcome.claimed.queue,
            fields.get(b"func") or _function(fields),
            _class_of(fields.get(b"priority", b"")),
            what,
            bucket(outcome.elapsed),
            waited,
        )
        if self.tally is not None:
            self._count(outcome, seen, max(0.0, wait))
        sums = self._sums.setdefault(int(at // 60), {})
        if len(sums) >= _FIELDS and seen not in sums:
            seen = (OTHER, OTHER.encode(), *seen[2:])
        one = sums.get(seen)
        if one is None:
            one = sums[seen] = _Sum()
        one.count += 1
        if outcome.elapsed > one.slowest:
            one.slowest = outcome.elapsed
        if outcome.peak > one.peak:
            one.peak = outcome.peak
        self.next_at = min(self.next_at, time.monotonic() + self._every)

    def _count(self, outcome: PendingOutcome, seen: _Seen, wait: float) -> None:
        """Add an outcome to the tally."""
        assert self.tally is not None
        queue, function, of, _, ran, waited = seen
        error = str(outcome.decision.fields.get("error_class", ""))
        self.tally.note(outcome.decision.kind, queue, of)
        self.tally.note_run(queue, of, outcome.elapsed, ran, wait, waited)
        if self.tally.full:
            self.tally.note_names(outcome.decision.kind, _named(function), outcome.elapsed, ran, error)

    def note_keyless(self, function: str) -> None:
        """Count a job that ran without the concurrency key that its function declares."""
        self._keyless[function if _NAME.fullmatch(function.encode()) and len(self._keyless) < _FIELDS else OTHER] += 1
        self.next_at = min(self.next_at, time.monotonic() + self._every)

    def _unix(self, text: bytes) -> float:
        """Return a stored time in Unix seconds; 0 if it is not a time. Most times of a call share their second, so the last one is
        cached."""
        if text[:19] != self._second:
            self._second, moment = text[:19], from_iso(text[:19])
            self._came = moment.timestamp() if moment else 0.0
        micros = text[20:26]
        return self._came and self._came + (int(micros) / 1e6 if micros.isdigit() else 0.0)

    def tick(self, now: float) -> None:
        """Send the sums to Redis. RedisAway if it does not answer: the same call is sent again later, unchanged."""
        self._pack()
        while self._calls:
            self._link.attempt(partial(self._tell, *self._calls[0]))
            self._calls.pop(0)
        self.next_at = inf

    def _pack(self) -> None:
        """Turn the sums into calls. Only a limited number of calls waits while Redis is away."""
        self._offset = time.time() - time.monotonic()
        for minute, sums in self._sums.items():
            counts: dict[tuple[str, str], Counter[str]] = {}
            for (queue, function, of, what, ran, waited), one in sums.items():
                fields = [what, f"r{ran}"] if waited < 0 else [what, f"r{ran}", f"w{waited}"]
                for name in (("queue", queue), ("function", _named(function))):
                    own = counts.setdefault(name, Counter())
                    for field in fields:
                        own[f"{of}:{field}"] += one.count
                # Of the function only: `own` is its counter.
                own[SLOWEST] = max(own[SLOWEST], ceil(one.slowest * 1000))
                own[PEAK] = max(own[PEAK], one.peak)
            rows: _Rows = {}
            for name, own in counts.items():
                rows[name] = [(minute, field, count) for field, count in own.items() if count]
                if sum(map(len, rows.values())) >= _FIELDS:
                    self._put(rows)
                    rows = {}
            if rows:
                self._put(rows)
        if self._keyless:
            self._put({("keyless", name): [(0, "", count)] for name, count in self._keyless.items()})
            self._keyless.clear()
        self._sums.clear()
        del self._calls[:-_MINUTES]

    def _put(self, rows: _Rows) -> None:
        self._number += 1
        self._calls.append((self._number, rows))

    def _tell(self, number: int, rows: _Rows) -> None:
        this = int(time.monotonic() // 60)
        told = {name: [(this - minute, field, count) for minute, field, count in own] for name, own in rows.items()}
        try:
            self._broker.note_history(self._membership.name, number, told)
        except ResponseError as error:
            if classify(error) == "transient":
                raise
            if str(error) != self._refused:
                self._refused = str(error)
                self._log.warning("statistics of jobs are not kept: %s", one_line(error))


def _function(fields: dict[bytes, bytes]) -> bytes:
    """Return the task's name in a full record, such as other programs write. A pickle is not opened, so all of them share one name."""
    found = _FUNCTION.match(fields.get(b"data", b"")[:210])
    return found[1] if found else b""


def _class_of(priority: bytes) -> int:
    return min(int(priority), CLASSES - 1) if priority.isdigit() and len(priority) < 4 else 1


def _named(function: bytes) -> str:
    return function.decode() if _NAME.fullmatch(function) else OTHER
