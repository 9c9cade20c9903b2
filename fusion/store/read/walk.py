"""Walks through several sorted sets in the order of their scores, as if they were one. It uses bounded reads, can continue from any place,
and works while members come and go.

A place is a score and a member. A member that stays in its set from the first read to the last is met exactly once. Equal scores are ordered
by member, and no read continues at a rank, which changes as members leave.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from redis import Redis
from redis.exceptions import RedisError, ResponseError

from fusion.store.client.adapter import batch

#: A score and a member, as Redis orders them.
Place = tuple[float, bytes]
#: Members of one read, and reads of one round trip.
MOST, KEYS = 500, 200
#: How many members before a place are read again, to check that none was left out. More from try to try, as the set may change between two
#: reads.
_BACK = (1, 8, 64, *[250] * 20)


def replies(connection: Redis, ask: Callable[[Any], object]) -> list[Any]:
    """Run one round trip in which a key of a wrong type reads as None. Raises errors that are not replies of Redis."""
    found = batch(connection, ask, raise_on_error=False)
    for i, reply in enumerate(found):
        if isinstance(reply, ResponseError):
            if not str(reply).startswith("WRONGTYPE"):
                raise reply
            found[i] = None
        elif isinstance(reply, RedisError):
            raise reply
    return found


class Backwards:
    """A member that sorts in reverse order."""

    __slots__ = ("member",)

    def __init__(self, member: bytes) -> None:
        self.member = member

    def __lt__(self, other: Backwards) -> bool:
        return self.member > other.member


class _Feed:
    """One set: members read and not taken yet, and the last place that was read."""

    __slots__ = ("buffer", "done", "key", "last", "tied")

    def __init__(self, key: str, after: Place | None) -> None:
        self.key, self.last = key, after
        self.buffer: deque[Place] = deque()
        self.done = False
        #: True if more members share a score than one read takes.
        self.tied = False


class Walk:
    """Walks through these sets, from behind the place `after` on; `descending` starts at the greatest score."""

    def __init__(
        self, connection: Redis, keys: Sequence[str], descending: bool, after: Place | None = None, most: int = MOST
    ) -> None:
        self._connection, self._descending, self._most = connection, descending, most
        self._feeds = [_Feed(key, after) for key in keys]
        self._dry = list(range(len(keys)))
        self._heap: list[tuple[float, Any, int]] = []

    def take(self, count: int) -> list[Place]:
        """Return the next places, at most `count`; fewer only at the end."""
        found: list[Place] = []
        # With few sets read about `count`; with many, enough that most sets need no second read.
        size = min(self._most, max(8, math.ceil(1.5 * count / max(1, len(self._feeds)))))
        while len(found) < count:
            if self._dry:
                self._fill(size)
                size = self._most
            if not self._heap:
                break
            if len(self._feeds) == 1:
                self._heap = []
                feed = self._feeds[0]
                while feed.buffer and len(found) < count:
                    found.append(feed.buffer.popleft())
                self._line_up(0)
                continue
            _, _, at = heapq.heappop(self._heap)
            found.append(self._feeds[at].buffer.popleft())
            self._line_up(at)
        return found

    def _line_up(self, at: int) -> None:
        feed = self._feeds[at]
        if feed.buffer:
            score, member = feed.buffer[0]
            heapq.heappush(self._heap, (-score, Backwards(member), at) if self._descending else (score, member, at))
        elif not feed.done:
            self._dry.append(at)

    def _fill(self, size: int) -> None:
        dry, self._dry = self._dry, []
        feeds = [self._feeds[at] for at in dry]
        for start in range(0, len(feeds), KEYS):
            part = [feed for feed in feeds[start : start + KEYS] if not feed.tied]
            rows = self._read(part, size) if part else []
            for feed, row in zip(part, rows, strict=True):
                self._took(feed, row or [], size)
        for feed in feeds:
            if feed.tied:
                self._jump(feed)
        for at in dry:
            self._line_up(at)

    def _read(self, feeds: Sequence[_Feed], size: int) -> list[Any]:
        return replies(self._connection, lambda pipe: [self._ask(pipe, feed, size) for feed in feeds])

    def _ask(self, pipe: Any, feed: _Feed, size: int) -> object:
        first: Any = feed.last[0] if feed.last else math.inf if self._descending else -math.inf
        last = -math.inf if self._descending else math.inf
        return pipe.zrange(
            feed.key, _score(first), _score(last), byscore=True, desc=self._descending, offset=0, num=size, withscores=True
        )

    def _took(self, feed: _Feed, row: Sequence[tuple[bytes, float]], size: int) -> None:
        fresh = [(score, member) for member, score in row if feed.last is None or self._follows((score, member), feed.last)]
        if len(row) < size:
            feed.done = True
        elif len(row) - len(fresh) > len(row) // 2:
            feed.tied = True  # most of what was read had been read before
            if not fresh:
                return
        self._keep(feed, fresh)

    def _keep(self, feed: _Feed, fresh: list[Place]) -> None:
        feed.buffer.extend(fresh)
        if fresh:
            feed.last = fresh[-1]

    def _follows(self, place: Place, other: Place) -> bool:
        return place < other if self._descending else place > other

    def _jump(self, feed: _Feed) -> None:
        """Continue among members of one score, by a rank that is looked up anew: the rank of the last member if it still exists, else where
        it would be. The read checks itself: it must begin with a member that is not behind that place."""
        assert feed.last is not None
        for back in _BACK:
            start = max(0, self._rank(feed.key, feed.last) - back)
            row = self._range(feed.key, start, self._most)
            fresh = [place for place in row if self._follows(place, feed.last)]
            begins = start == 0 or (bool(row) and len(fresh) < len(row) and not self._follows(row[0], feed.last))
            if begins and (fresh or len(row) < self._most):
                break  # else members came or left between the two reads
        feed.done = len(row) < self._most
        self._keep(feed, fresh)

    def _range(self, key: str, start: int, count: int) -> list[Place]:
        (row,) = replies(
            self._connection,
            lambda pipe: pipe.zrange(key, start, start + count - 1, desc=self._descending, withscores=True),
        )
        return [(score, member) for member, score in row or []]

    def _rank(self, key: str, last: Place) -> int:
        """Return how many members are not behind this place."""
        score, rank = replies(
            self._connection,
            lambda pipe: (pipe.zscore(key, last[1]), (pipe.zrevrank if self._descending else pipe.zrank)(key, last[1])),
        )
        if score == last[0] and rank is not None:
            return int(rank) + 1
        before, among = replies(
            self._connection,
            lambda pipe: (
                pipe.zcount(key, *((f"({_score(last[0])}", "+inf") if self._descending else ("-inf", f"({_score(last[0])}"))),
                pipe.zcount(key, _score(last[0]), _score(last[0])),
            ),
        )
        low, high = int(before or 0), int(before or 0) + int(among or 0)
        while low < high:
            middle = (low + high) // 2
            row = self._range(key, middle, 1)
            if row and not self._follows(row[0], last):
                low = middle + 1
            else:
                high = middle
        return low


def _score(score: float) -> str:
    return repr(score) if math.isfinite(score) else "+inf" if score > 0 else "-inf"
