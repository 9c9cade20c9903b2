"""What a process saw of its jobs: how many, and how long they waited and ran. Summed here, told to Redis with each sign of life."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from functools import partial
from math import inf

from redis.exceptions import ResponseError

from fusion.kernel.timeutil import from_iso
from fusion.runtime.membership import Membership
from fusion.runtime.outbox import Result
from fusion.runtime.redis_link import RedisLink
from fusion.store.client.connections import classify, one_line
from fusion.store.layout.history import MOST_NAMES, OTHER, bucket
from fusion.store.write.broker import Broker

#: What an outcome counts as; others are no ends of a run that tell how long a job takes.
_KINDS = {"finished": "completed", "failed": "failed", "retry": "retried"}
_FUNCTION = re.compile(rb'(?:\["|\A)([\w.]{1,200})(?:"|\Z)')
#: Minutes that are kept while Redis is away; fields that one call carries, so that it holds up nobody.
_MINUTES, _FIELDS = 60, 500

#: By minute, ("queue" or "function", name) and field.
_Sums = dict[int, dict[tuple[str, str], Counter[str]]]
#: Of each such name: minute, field, count.
_Rows = dict[tuple[str, str], list[tuple[int, str, int]]]


class History:
    """Sums what became of jobs by minute, for queues and for functions, and tells Redis every `every` seconds while there is something.

    A kill loses what was not told. So does an error reply: these are statistics, and must hold up nothing.
    """

    def __init__(self, broker: Broker, link: RedisLink, membership: Membership, every: float, log: logging.Logger) -> None:
        self._broker, self._link, self._membership, self._every, self._log = broker, link, membership, every, log
        self._sums: _Sums = {}
        self._calls: list[tuple[int, _Rows]] = []
        self._number = 0
        self._tell_at, self._refused = inf, ""

    @property
    def next_at(self) -> float:
        """When Redis is told; `inf` while there is nothing to tell."""
        return self._tell_at

    def note(self, result: Result) -> None:
        """Count an outcome that Redis has accepted."""
        what = _KINDS.get(result.decision.kind)
        if what is None:
            return
        now, fields = time.monotonic(), result.claimed.fields
        priority = fields.get(b"priority", b"1")
        prefix = (priority.decode() if priority.isdigit() and len(priority) < 4 else "1") + ":"
        told = [prefix + what, f"{prefix}r{bucket(result.elapsed)}"]
        if not fields.get(b"attempts") and (came := from_iso(fields.get(b"enqueued_at"))):
            waited = time.time() - (now - result.at) - result.elapsed - came.timestamp()
            told.append(f"{prefix}w{bucket(waited)}")
        names = self._sums.setdefault(int(now // 60), {})
        for name in (("queue", result.claimed.queue), ("function", _function(fields))):
            if name not in names and len(names) >= 2 * MOST_NAMES:
                name = name[0], OTHER
            names.setdefault(name, Counter()).update(told)
        self._tell_at = min(self._tell_at, now + self._every)

    def tick(self, now: float) -> None:
        """Tell Redis what there is. RedisAway if it does not answer: it is told later, and what was sent is told again as it was."""
        self._pack()
        while self._calls:
            self._link.attempt(partial(self._tell, *self._calls[0]))
            self._calls.pop(0)
        self._tell_at = inf

    def _pack(self) -> None:
        """Make calls of what was summed; only so many wait while Redis is away."""
        rows: _Rows = {}
        size = 0
        for minute, names in self._sums.items():
            for name, counts in names.items():
                rows.setdefault(name, []).extend((minute, field, count) for field, count in counts.items())
                size += len(counts)
                if size >= _FIELDS:
                    self._put(rows)
                    rows, size = {}, 0
        if rows:
            self._put(rows)
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


def _function(fields: dict[bytes, bytes]) -> str:
    """The task's name; of a pickle, which is not looked into, and of what is no name, none of its own."""
    found = _FUNCTION.match(fields.get(b"func") or fields.get(b"data", b"")[:210])
    return found[1].decode() if found else OTHER
