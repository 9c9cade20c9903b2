"""RQ's `Repeat`: how often a job runs again once it has finished, and when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fusion.rq.hints import missing, refused


@dataclass
class Repeat:
    """`times` more runs of a job, each once the run before it has finished. `intervals`: the seconds before each of them; if they are fewer, the
    last one repeats. A run that fails for good ends the job."""

    times: int
    intervals: list[int]

    def __init__(self, times: int, interval: int | Iterable[int] | None = 0) -> None:
        """`interval`: seconds before each of the runs, one figure or several. ValueError, TypeError."""
        if times < 1:
            raise ValueError("times: please enter a value greater than 0")
        if isinstance(interval, int):
            found = [interval]
        elif isinstance(interval, Iterable) and not isinstance(interval, (str, bytes)):
            found = list(interval)
        else:
            raise TypeError("intervals must be an int or iterable of ints")
        if not found:
            raise ValueError("intervals: give at least one")
        if any(one < 0 for one in found):
            raise ValueError("intervals: negative numbers are not allowed")
        self.times, self.intervals = times, found

    @classmethod
    def get_interval(cls, count: int, intervals: list[int]) -> int:
        """Return the seconds before the run that comes after `count` repeats."""
        return intervals[count] if count < len(intervals) else intervals[-1]

    @classmethod
    def schedule(cls, *args: Any, **kwargs: Any) -> None:
        """Refuse: the next run comes with the end of the one before it, in one transaction."""
        raise refused("Repeat.schedule()", "leave it out: a worker does it as it stores that the job has finished")


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
