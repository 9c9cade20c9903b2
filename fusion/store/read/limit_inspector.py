"""Concurrency keys as they are now: limits of each, jobs that have its slots, and how many wait."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fusion.kernel.timeutil import from_iso
from fusion.store.layout import codec
from fusion.store.layout.keys import Keys
from fusion.store.layout.limits import Limit, read_limit
from fusion.store.layout.score import CLASS_RANGES
from fusion.store.read.base import InspectorBase, moment, texts
from fusion.store.read.totals import Counters, LifetimeTotals, read_counters

#: Seconds without a start after which a key with waiting jobs is stuck. Longest time for which a task may hold a key back: a longer one means
#: that the clock was set back.
STUCK, LONGEST_HOLD = 600.0, 86400.0
#: Keys read together: to find those with waiting jobs, and then to read the rest of those.
_PAGE, _ROWS = 2000, 200
#: Replies of a key in `limits`: what is set, holders, three counts, when it was used, runs that want its lock and the first of them; the head of
#: each class of those with a slot and without.
_FIRST_HEAD = 8
_REPLIES = _FIRST_HEAD + 2 * len(CLASS_RANGES)
_TIMES = ("origin", "status", "started_at", "enqueued_at", "created_at")


@dataclass(frozen=True, slots=True)
class Holder:
    """A job that has a slot. `started`: it runs, or keeps the slot between attempts; else it waits in its queue. `since`: when it started, or
    came to its queue."""

    job_id: str
    queue: str
    status: str
    started: bool
    since: datetime | None


@dataclass(frozen=True, slots=True)
class LimitInfo:
    """A concurrency key. `active`: slots of jobs that started; `held`: all slots in use; `blocked`: jobs that wait for one. `holders`: the
    first hundred jobs that have one. `held_back`: the time until which a task holds the key back, None if none does. `stuck`: jobs wait, none
    of the key has started for ten minutes, and it is neither paused nor held back. `queued`: jobs that have a slot and wait in their queues.
    `oldest`: when the longest waiting job was enqueued, by the first job of each priority. `lock_waiting`: runs that wait for the lock of this
    name."""

    limit: Limit
    active: int
    held: int
    blocked: int
    last_used: datetime
    paused: bool
    holders: tuple[Holder, ...]
    stuck: bool
    held_back: datetime | None = None
    queued: int = 0
    oldest: datetime | None = None
    lock_waiting: int = 0

    @property
    def queue_length(self) -> int:
        """The number of jobs that wait, for their turn or for a slot."""
        return self.queued + self.blocked

    @property
    def paused_until(self) -> datetime | None:
        """The time at which its pause ends by itself; None for never."""
        return None if math.isinf(self.limit.paused_until) else moment(self.limit.paused_until)


@dataclass(frozen=True, slots=True)
class KeyStats(LifetimeTotals):
    """A concurrency key at one moment, `last_updated` by the server's clock, and the outcomes of its jobs since it began."""

    info: LimitInfo
    counters: Counters
    last_updated: datetime

    @property
    def key(self) -> str:
        """The key."""
        return self.info.limit.key

    @property
    def queue_length(self) -> int:
        """The number of jobs that wait, for their turn or for a slot."""
        return self.info.queue_length

    @property
    def active_count(self) -> int:
        """The number of running jobs."""
        return self.info.active

    @property
    def max_concurrent(self) -> int | None:
        """The most that may run at once; None for any number."""
        return self.info.limit.max_concurrent

    @property
    def oldest_enqueued_at(self) -> datetime | None:
        """The time at which the longest waiting job was enqueued, by the first job of each priority."""
        return self.info.oldest


class LimitInspector(InspectorBase):
    """Reads concurrency keys."""

    def limit_keys(self, offset: int = 0, length: int = 100) -> list[str]:
        """Return the keys in use, the last used first."""
        return self._page(self.keys.limits, offset, length, desc=True)

    def limits(self, keys: Sequence[str]) -> list[LimitInfo | None]:
        """Read these keys; None for an unknown one. Two round trips."""
        return [found.info if found else None for found in self._read(keys)]

    def stats(self, key: str) -> KeyStats | None:
        """Read one key with its lifetime counters; None if it is unknown. O(1), and two round trips."""
        return self._read([key])[0]

    def members(self, key: str) -> tuple[list[str], list[str]]:
        """Return the jobs that have a slot of a key, and those that wait for one; the next of each first. One round trip."""
        names = self.keys.limit_held(key), self.keys.limit_waiting(key)
        held, waiting = self._batch(lambda pipe: [pipe.zrevrange(name, 0, -1) for name in names])
        return [codec.text(one) for one in held], [codec.text(one) for one in waiting]

    def _read(self, keys: Sequence[str]) -> list[KeyStats | None]:
        def ask(pipe: Any) -> None:
            pipe.time()
            for key in keys:
                _ask(pipe, self.keys, key)

        (seconds, micros), *found = self._batch(ask)
        rows = [found[at : at + _REPLIES] for at in range(0, len(found), _REPLIES)]
        ids = list({codec.text(one): None for row in rows for one in (*(held for held, _ in row[1]), *_heads(row))})
        firsts = {key: row[7][0] for key, row in zip(keys, rows, strict=True) if row[7]}

        def ask_more(pipe: Any) -> None:
            for one in ids:
                pipe.hmget(self.keys.job(one), _TIMES)
            for key, first in firsts.items():
                pipe.zscore(self.keys.limit_held(key), first)

        more = self._batch(ask_more) if ids or firsts else []
        jobs = {
            job_id: [codec.text(one) if one else "" for one in row] for job_id, row in zip(ids, more[: len(ids)], strict=True)
        }
        locked = {key for key, score in zip(firsts, more[len(ids) :], strict=True) if score is not None}
        at = seconds + micros / 1e6
        infos = [_info(key, row, jobs, at, locked=key in locked) for key, row in zip(keys, rows, strict=True)]
        return [
            KeyStats(info, read_counters(row[0]), moment(at)) if info else None for info, row in zip(infos, rows, strict=True)
        ]

    def stuck_limits(self, length: int = 1000) -> list[LimitInfo]:
        """Return the stuck keys among `length` keys with waiting jobs: half of these are the least recently used, half the most recently
        used."""
        least, last = self._keys_with_waiting(length - length // 2), self._keys_with_waiting(length // 2, last=True)
        keys = list(dict.fromkeys([*least, *last]))
        parts = (keys[at : at + _ROWS] for at in range(0, len(keys), _ROWS))
        return [one for part in parts for one in self.limits(part) if one is not None and one.stuck]

    def _keys_with_waiting(self, length: int, *, last: bool = False) -> list[str]:
        """Return up to `length` keys with blocked jobs: the least recently used ones, or with `last` the most recently used. One round trip
        per page of keys that have none."""
        found, offset = list[str](), 0
        while len(found) < length:
            page = self._page(self.keys.limits, offset, _PAGE, desc=last)
            names = [self.keys.limit_waiting(key) for key in page]
            if names and self.connection.exists(*names):
                there = self._batch(lambda pipe: [pipe.exists(name) for name in names])  # noqa: B023
                found += [key for key, waits in zip(page, there, strict=True) if waits]
            if len(page) < _PAGE:
                break
            offset += _PAGE
        return found[:length]

    def limits_audit(self) -> int:
        """Return how many wrong slots `clean` found and corrected. It is 0, unless Fusion has a bug or another program wrote there."""
        found = self.connection.get(self.keys.limits_audit)
        return int(found) if found else 0


def _ask(pipe: Any, keys: Keys, key: str) -> None:
    pipe.hgetall(keys.limit(key))
    pipe.zrevrange(keys.limit_held(key), 0, 99, withscores=True)
    pipe.zcard(keys.limit_held(key))
    pipe.zcount(keys.limit_held(key), "+inf", "+inf")
    pipe.zcard(keys.limit_waiting(key))
    pipe.zscore(keys.limits, key)
    pipe.zcard(keys.limit_locks(key))
    pipe.zrange(keys.limit_locks(key), 0, 0)
    for name in (keys.limit_held(key), keys.limit_waiting(key)):
        for low, high in CLASS_RANGES:
            pipe.zrange(name, "(+inf" if high == "+inf" else high, low, byscore=True, desc=True, offset=0, num=1)


def _heads(row: Sequence[Any]) -> list[bytes]:
    """Return the waiting jobs that are first in their class."""
    return [ids[0] for ids in row[_FIRST_HEAD:] if ids]


def _arrived(job: Sequence[str]) -> datetime | None:
    return from_iso(next(filter(None, job[3:]), ""))


def _info(key: str, row: Sequence[Any], jobs: Mapping[str, Sequence[str]], now: float, *, locked: bool) -> LimitInfo | None:
    """`locked`: a run has the lock of this name."""
    fields, held, count, active, blocked, used, locking = row[:7]
    if used is None and not count and not fields:
        return None
    limit = read_limit(key, texts(fields))
    holders = []
    for raw, score in held:
        job = jobs[codec.text(raw)]
        origin, status, started_at = job[:3]
        started = math.isinf(float(score))
        since = from_iso(started_at) if started else _arrived(job)
        holders.append(Holder(codec.text(raw), origin, status, started, since))
    paused = limit.paused_until > now
    last = max((one.since for one in holders if one.since), default=None)
    held_back = moment(limit.held_back_until) if now < limit.held_back_until <= now + LONGEST_HOLD else None
    stuck = blocked > 0 and not paused and not held_back and last is not None and now - last.timestamp() > STUCK
    oldest = min(filter(None, (_arrived(jobs[codec.text(one)]) for one in _heads(row))), default=None)
    used_at = moment((used or 0) / 1000)
    queued = max(0, count - active)
    return LimitInfo(
        limit, active, count, blocked, used_at, paused, tuple(holders), stuck, held_back, queued, oldest, locking - locked
    )
