"""RQ's `Retry`, and how a policy of RQ's is stored. Task modules import this, so it stays lean."""

from __future__ import annotations

import json
from collections.abc import Iterable

import fusion.retry

#: Marks the retry policy of a job that came through `fusion.rq`. Every such job has a policy: without `retry=` one of no retries.
MARK = b'"as": "rq"'


class Retry(fusion.retry.Retry):
    """RQ's policy: `max` retries of any error, each after its `interval` in seconds: one figure or several. If they are fewer than the retries,
    the first one repeats, as in RQ. A retried job goes to the end of its queue, or with `enqueue_at_front` to its old place. With no interval it
    keeps the slot of its `RateLimit` meanwhile."""

    __slots__ = ("enqueue_at_front",)

    def __init__(self, max: int, interval: int | Iterable[int] = 0, enqueue_at_front: bool = False) -> None:
        if max < 1:
            raise ValueError("max: please enter a value greater than 0")
        if isinstance(interval, int):
            if interval < 0:
                raise ValueError("interval: negative numbers are not allowed")
            intervals: list[float] = [interval]
        elif isinstance(interval, Iterable):
            intervals = []
            for one in interval:
                if one < 0:
                    raise ValueError("interval: negative numbers are not allowed")
                intervals.append(one)
        super().__init__(max, intervals or [0], place="keep" if enqueue_at_front else "back", keep_slot=not any(intervals))
        self.enqueue_at_front = enqueue_at_front

    def __repr__(self) -> str:
        interval = self.intervals[0] if len(self.intervals) == 1 else self.intervals
        return f"Retry(max={self.max}, interval={interval!r}, enqueue_at_front={self.enqueue_at_front!r})"

    @classmethod
    def get_interval(cls, count: int, intervals: float | list[float] | None) -> float:
        """Return the interval of the retry after `count` others."""
        if isinstance(intervals, (int, float)):
            return intervals
        if not intervals:
            return 0
        return intervals[count] if count < len(intervals) else intervals[-1]


class _NoRetries(fusion.retry.Retry):
    """The policy of RQ's jobs without `retry=`, where a policy has to be an object."""

    __slots__ = ()

    def to_json(self) -> str:
        """Return the stored form."""
        return stored(None)


NO_RETRIES = _NoRetries(0)


def stored(policy: fusion.retry.Retry | None) -> str:
    """Return the stored form of a job's policy, with the mark; None: no retry at all."""
    if policy is None:
        return json.dumps({"max": 0, "as": "rq"})
    fields = json.loads(policy.to_json())
    if isinstance(policy, Retry) and len(policy.intervals) != 1:
        missing = policy.max - len(policy.intervals)
        fields["interval"] = [policy.intervals[0]] * missing + policy.intervals[-policy.max :]
    return json.dumps({**fields, "as": "rq"})
